// List of recordings, with a search by name.
import { byId, make } from './dom.js';
import { getJson } from './api.js';

export class RecordingList {
  constructor(open) {
    this.open = open;
    this.rows = [];
    byId('search').addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(), 150);
    });
  }

  async load() {
    const { recordings, found } = await getJson('/api/recordings', { search: byId('search').value });
    this.rows = recordings;
    this.found = found;
    this.draw();
  }

  draw(current = this.current) {
    this.current = current;
    byId('recordings').replaceChildren(...this.rows.map((row) => this.item(row)));
    const more = this.found - this.rows.length;
    byId('found').textContent = more > 0 ? `and ${more.toLocaleString('en')} more: search for a name` : '';
  }

  item(row) {
    const name = row.recording_id.split('/').slice(1).join('/') || row.recording_id;
    const counts = `${row.sounds} ${row.sounds === 1 ? 'event' : 'events'}${row.decided ? `, ${row.decided} decided` : ''}`;
    const button = make('button', { title: row.recording_id, click: () => this.open(row.recording_id) },
      make('span', { text: name, className: 'name' }), make('small', { text: counts }));
    const fraction = row.sounds ? Math.min(1, row.decided / row.sounds) : 0;
    button.append(make('meter', { min: 0, max: 1, value: fraction, 'aria-label': 'decided' }));
    return make('li', { className: row.recording_id === this.current ? 'current' : '' }, button);
  }

  // The id of the recording `step` rows further in the list, or null at its end.
  neighbour(recordingId, step) {
    const row = this.rows.findIndex((row) => row.recording_id === recordingId);
    const next = this.rows[row + step];
    return next ? next.recording_id : null;
  }
}
