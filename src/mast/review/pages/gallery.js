// The gallery: what a queue asks for, as a grid of small spectrograms; one key decides, and the next one is at hand.
import { seconds } from './axes.js';
import { byId, make, toast } from './dom.js';
import { newSpan } from './desk.js';
import { ask } from './server.js';
import { drawBox } from './stage.js';
import { fetchPicture } from './tiles.js';

const PAGE = 24;
const WIDTH = 320;
const HEIGHT = 170;
const LEAST_S = 2;

export class Gallery {
  constructor(desk, names, palette, player, { openAsk, failed }) {
    Object.assign(this, { desk, names, palette, player, openAsk, failed });
    this.cards = [];
    this.at = 0;
  }

  async load(queue) {
    const cards = [];
    Object.assign(this, { queue, cards, at: 0 });
    byId('cards').replaceChildren();
    await this.more();
    if (this.cards === cards) this.focus(0);
  }

  // Fetch more; what is decided here but not there yet is not asked again. An answer that comes after another queue was
  // chosen is dropped: its sounds would be decided as if that queue had asked for them.
  async more() {
    const { cards } = this;
    if (this.loading === cards) return;
    this.loading = cards;
    try {
      const unsent = this.desk.outbox.unsent().map(([, proposal]) => proposal.subject);
      const here = cards.flatMap((card) => card.ask.keys);
      const without = [...new Set([...unsent, ...here])].slice(-150);
      const query = new URLSearchParams([['queue', this.queue], ['count', PAGE], ...without.map((name) => ['without', name])]);
      const { asks } = await ask(`/api/asks?${query}`);
      if (this.cards !== cards) return;
      for (const one of asks) this.add(one);
      byId('gallery-end').textContent = cards.length ? '' : 'This queue is empty: all it asks for is decided.';
    } finally {
      if (this.loading === cards) this.loading = null;
    }
  }

  add(one) {
    const card = { ask: one, boxes: one.boxes, done: null, view: viewOf(one) };
    const number = this.cards.length;
    card.canvas = make('canvas', { width: 2 * WIDTH, height: 2 * HEIGHT });
    const says = (text, title, state) => make('button', { text, title, className: state, click: (event) => {
      event.stopPropagation();
      this.focus(number);
      this.decide(state);
    } });
    const buttons = make('menu', {}, says('✓', 'Accept (a)', 'accepted'), says('✗', 'Reject (r)', 'rejected'), says('?', 'Unsure (u)', 'unsure'),
      make('button', { text: '✎', title: 'Name it (l)', click: (event) => { event.stopPropagation(); this.focus(number); this.name().catch(this.failed); } }),
      make('button', { text: '▶', title: 'Listen (space)', click: () => { this.focus(number); this.play(); } }));
    card.element = make('article', { tabindex: -1, click: () => this.focus(number) }, card.canvas,
      make('p', { className: 'why', text: one.why }), make('p', { className: 'where', text: whereOf(one), title: one.recording_id }), buttons);
    card.element.addEventListener('dblclick', () => this.openAsk(one));
    this.cards.push(card);
    byId('cards').append(card.element);
    this.fetch(card);
  }

  async fetch(card) {
    const { startS, endS, lowHz, highHz } = card.view;
    const values = { start_s: startS, end_s: endS, low_hz: lowHz, high_hz: highHz, width: 2 * WIDTH, height: 2 * HEIGHT };
    try {
      card.picture = await fetchPicture({ recording_id: card.ask.recording_id, ...values });
    } catch (error) {
      card.element.append(make('p', { className: 'fault', text: error.message }));
    }
    this.draw(card);
  }

  draw(card) {
    const context = card.canvas.getContext('2d');
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.fillRect(0, 0, WIDTH, HEIGHT);
    if (card.picture) context.drawImage(card.picture.coloured(this.palette), 0, 0, WIDTH, HEIGHT);
    for (const box of card.boxes) drawBox(context, card.view, box, false);
    card.element.className = `${card.done || ''} ${this.cards[this.at] === card ? 'focus' : ''}`;
  }

  redraw() {
    for (const card of this.cards) this.draw(card);
  }

  focus(number) {
    const before = this.cards[this.at];
    this.at = Math.min(Math.max(0, number), this.cards.length - 1);
    const card = this.cards[this.at];
    if (before) this.draw(before);
    if (!card) return;
    this.draw(card);
    card.element.focus({ preventScroll: true });
    card.element.scrollIntoView({ block: 'nearest' });
  }

  // Steps through the grid: by one, or by a row.
  step(columns, rows) {
    const across = Math.max(1, Math.round(byId('cards').clientWidth / (this.cards[0]?.element.offsetWidth + 12 || WIDTH)));
    this.focus(this.at + columns + rows * across);
  }

  // Whoever names a sound accepts it.
  async name() {
    const card = this.cards[this.at];
    if (!card || !this.hasBoxes(card)) return;
    const said = await this.names.ask(card.boxes[0].label);
    this.focus(this.cards.indexOf(card));
    if (said !== undefined) this.decide('accepted', { label: said });
  }

  nameAgain() {
    const card = this.cards[this.at];
    const said = card && this.hasBoxes(card) && this.names.again();
    if (said) this.decide('accepted', { label: said });
  }

  hasBoxes(card) {
    if (!card.boxes.length) toast('Here is no box to name, but a moment to look at: accept it, or open it (e).');
    return card.boxes.length > 0;
  }

  decide(state, changes = {}) {
    const card = this.cards[this.at];
    if (!card) return;
    if (!card.boxes.length) card.span ??= newSpan(card.ask, card.ask.start_s, card.ask.end_s);
    const asked = card.span ? [card.span] : card.boxes;
    card.done = state;
    for (const box of asked) this.desk.decide(box, { state, ...changes }, this.queue);
    if (this.cards.slice(this.at + 1).filter((next) => !next.done).length < PAGE / 4) this.more().catch(this.failed);
    this.focus(this.at + 1);
  }

  // A box has changed: by this page, by an undo, or by someone else.
  shown(box) {
    for (const card of this.cards) {
      const isSpan = card.span?.subject === box.subject;
      if (!isSpan && !card.ask.subjects.includes(box.subject)) continue;
      if (isSpan) card.span = { ...card.span, ...box };
      card.boxes = card.boxes.map((other) => (other.subject === box.subject ? { ...other, ...box } : other));
      card.done = box.state === 'open' ? null : box.state;
      if (box.state === 'open') this.focus(this.cards.indexOf(card));
      this.draw(card);
    }
  }

  play() {
    const card = this.cards[this.at];
    if (!card) return;
    if (this.player.isPlaying) this.player.stop();
    else this.player.play(card.ask, { start_s: card.view.startS, end_s: card.view.endS, ...bandOf(card.boxes) });
  }

  open() {
    if (this.cards[this.at]) this.openAsk(this.cards[this.at].ask);
  }
}

function bandOf(boxes) {
  if (!boxes.length) return { low_hz: null, high_hz: null };
  return { low_hz: Math.min(...boxes.map((box) => box.low_hz)), high_hz: Math.max(...boxes.map((box) => box.high_hz)) };
}

// A little more than the sounds need, with the maths that `drawBox` asks for.
function viewOf(one) {
  const topHz = one.sample_rate_hz / 2;
  const lengthS = Math.min(Math.max(LEAST_S, (one.end_s - one.start_s) * 1.6), one.duration_s);
  const middleS = (one.start_s + one.end_s) / 2;
  const startS = Math.min(Math.max(0, middleS - lengthS / 2), one.duration_s - lengthS);
  const { low_hz, high_hz } = bandOf(one.boxes);
  const bandHz = Math.min(topHz, low_hz === null ? topHz : Math.max(8000, (high_hz - low_hz) * 2));
  const lowHz = low_hz === null ? 0 : Math.min(Math.max(0, (low_hz + high_hz) / 2 - bandHz / 2), topHz - bandHz);
  return {
    startS, endS: startS + lengthS, lowHz, highHz: lowHz + bandHz,
    x: (timeS) => ((timeS - startS) / lengthS) * WIDTH,
    y: (hz) => ((lowHz + bandHz - hz) / bandHz) * HEIGHT,
  };
}

function whereOf(one) {
  const score = one.boxes.length === 1 && one.boxes[0].score !== null ? ` · score ${one.boxes[0].score.toFixed(2)}` : '';
  return `${one.recording_id.split('/').slice(1).join('/')} · ${seconds(one.start_s)}${score}`;
}
