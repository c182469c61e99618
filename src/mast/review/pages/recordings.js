// The list of recordings, and finding one by its name.
import { byId, make } from './dom.js';
import { ask } from './server.js';

export class Recordings {
  constructor(open) {
    this.open = open;
    this.rows = [];
    byId('search').addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(), 150);
    });
  }

  async load() {
    const { recordings, found } = await ask('/api/recordings', { search: byId('search').value });
    this.rows = recordings;
    this.found = found;
    this.draw();
  }

  draw(current = this.current) {
    this.current = current;
    byId('recordings').replaceChildren(...this.rows.map((row) => this.item(row)));
    const more = this.found - this.rows.length;
    byId('found').textContent = more > 0 ? `and ${more.toLocaleString('en')} more: find them by their name` : '';
  }

  item(row) {
    const name = row.recording_id.split('/').slice(1).join('/') || row.recording_id;
    const about = `${row.sounds} sounds${row.decided ? `, ${row.decided} decided` : ''}`;
    const button = make('button', { title: row.recording_id, click: () => this.open(row.recording_id) },
      make('span', { text: name, className: 'name' }), make('small', { text: about }));
    const share = row.sounds ? Math.min(1, row.decided / row.sounds) : 0;
    button.append(make('meter', { min: 0, max: 1, value: share, 'aria-label': 'decided' }));
    return make('li', { className: row.recording_id === this.current ? 'current' : '' }, button);
  }

  // The recording so many places further in the list, or null at its end.
  beside(recordingId, step) {
    const at = this.rows.findIndex((row) => row.recording_id === recordingId);
    const next = this.rows[at + step];
    return next ? next.recording_id : null;
  }
}
