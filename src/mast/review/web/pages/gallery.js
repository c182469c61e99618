// Gallery: the items of a queue as a grid of small spectrograms. One key gives a verdict and selects the next item.
import { seconds } from './axes.js';
import { byId, make, toast } from './dom.js';
import { newSpan } from './decisions.js';
import { getJson } from './api.js';
import { drawBox } from './spectrogram-canvas.js';
import { fetchTileImage } from './tile-layer.js';

const PAGE_SIZE = 24;
const WIDTH = 320;
const HEIGHT = 170;
const MIN_SPAN_S = 2;

export class Gallery {
  constructor(decisions, labels, palette, player, { openItem, failed }) {
    Object.assign(this, { decisions, labels, palette, player, openItem, failed });
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

  // Load more items, without those with unsent verdicts. A response that arrives after another queue was selected is
  // dropped: verdicts on its events would be stored under the wrong queue.
  async more() {
    const { cards } = this;
    if (this.loading === cards) return;
    this.loading = cards;
    try {
      const unsent = this.decisions.outbox.unsent().map(([, proposal]) => proposal.event_id);
      const loaded = cards.flatMap((card) => card.item.keys);
      const without = [...new Set([...unsent, ...loaded])].slice(-150);
      const query = new URLSearchParams([['queue', this.queue], ['count', PAGE_SIZE], ...without.map((name) => ['without', name])]);
      const { items } = await getJson(`/api/queue-items?${query}`);
      if (this.cards !== cards) return;
      for (const item of items) this.add(item);
      byId('gallery-end').textContent = cards.length ? '' : 'This queue is empty: all its items are decided.';
    } finally {
      if (this.loading === cards) this.loading = null;
    }
  }

  add(item) {
    const card = { item, boxes: item.boxes, state: null, view: viewOf(item) };
    const number = this.cards.length;
    card.canvas = make('canvas', { width: 2 * WIDTH, height: 2 * HEIGHT });
    const stateButton = (text, title, state) => make('button', { text, title, className: state, click: (event) => {
      event.stopPropagation();
      this.focus(number);
      this.decide(state);
    } });
    const buttons = make('menu', {}, stateButton('✓', 'Accept (a)', 'accepted'), stateButton('✗', 'Reject (r)', 'rejected'), stateButton('?', 'Unsure (u)', 'unsure'),
      make('button', { text: '✎', title: 'Label (l)', click: (event) => { event.stopPropagation(); this.focus(number); this.label().catch(this.failed); } }),
      make('button', { text: '▶', title: 'Play (space)', click: () => { this.focus(number); this.play(); } }));
    card.element = make('article', { tabindex: -1, click: () => this.focus(number) }, card.canvas,
      make('p', { className: 'reason', text: item.reason }), make('p', { className: 'location', text: locationOf(item), title: item.recording_id }), buttons);
    card.element.addEventListener('dblclick', () => this.openItem(item));
    this.cards.push(card);
    byId('cards').append(card.element);
    this.fetch(card);
  }

  async fetch(card) {
    const { startS, endS, lowHz, highHz } = card.view;
    const values = { start_s: startS, end_s: endS, low_hz: lowHz, high_hz: highHz, width: 2 * WIDTH, height: 2 * HEIGHT };
    try {
      card.image = await fetchTileImage({ recording_id: card.item.recording_id, ...values });
    } catch (error) {
      card.element.append(make('p', { className: 'fault', text: error.message }));
    }
    this.draw(card);
  }

  draw(card) {
    const context = card.canvas.getContext('2d');
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.fillRect(0, 0, WIDTH, HEIGHT);
    if (card.image) context.drawImage(card.image.coloured(this.palette), 0, 0, WIDTH, HEIGHT);
    for (const box of card.boxes) drawBox(context, card.view, box, false);
    card.element.className = `${card.state || ''} ${this.cards[this.at] === card ? 'focus' : ''}`;
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

  // Move the focus by columns and rows of the grid.
  step(columns, rows) {
    const columnCount = Math.max(1, Math.round(byId('cards').clientWidth / (this.cards[0]?.element.offsetWidth + 12 || WIDTH)));
    this.focus(this.at + columns + rows * columnCount);
  }

  // Adding a label accepts the event.
  async label() {
    const card = this.cards[this.at];
    if (!card || !this.hasBoxes(card)) return;
    const picked = await this.labels.pick(card.boxes[0].label);
    this.focus(this.cards.indexOf(card));
    if (picked !== undefined) this.decide('accepted', { label: picked });
  }

  labelAgain() {
    const card = this.cards[this.at];
    const repeated = card && this.hasBoxes(card) && this.labels.repeat();
    if (repeated) this.decide('accepted', { label: repeated });
  }

  hasBoxes(card) {
    if (!card.boxes.length) toast('This item is a span without a box to label. Accept it, or open it (e).');
    return card.boxes.length > 0;
  }

  decide(state, changes = {}) {
    const card = this.cards[this.at];
    if (!card) return;
    if (!card.boxes.length) card.span ??= newSpan(card.item, card.item.start_s, card.item.end_s);
    const boxes = card.span ? [card.span] : card.boxes;
    card.state = state;
    for (const box of boxes) this.decisions.decide(box, { state, ...changes }, this.queue);
    if (this.cards.slice(this.at + 1).filter((next) => !next.state).length < PAGE_SIZE / 4) this.more().catch(this.failed);
    this.focus(this.at + 1);
  }

  // Update the cards of a box that was changed by this page, by an undo, or by another user.
  shown(box) {
    for (const card of this.cards) {
      const isSpan = card.span?.event_id === box.event_id;
      if (!isSpan && !card.item.event_ids.includes(box.event_id)) continue;
      if (isSpan) card.span = { ...card.span, ...box };
      card.boxes = card.boxes.map((other) => (other.event_id === box.event_id ? { ...other, ...box } : other));
      card.state = box.state === 'open' ? null : box.state;
      if (box.state === 'open') this.focus(this.cards.indexOf(card));
      this.draw(card);
    }
  }

  play() {
    const card = this.cards[this.at];
    if (!card) return;
    if (this.player.isPlaying) this.player.stop();
    else this.player.play(card.item, { start_s: card.view.startS, end_s: card.view.endS, ...bandOf(card.boxes) });
  }

  open() {
    if (this.cards[this.at]) this.openItem(this.cards[this.at].item);
  }
}

function bandOf(boxes) {
  if (!boxes.length) return { low_hz: null, high_hz: null };
  return { low_hz: Math.min(...boxes.map((box) => box.low_hz)), high_hz: Math.max(...boxes.map((box) => box.high_hz)) };
}

// A view slightly larger than the events, with the functions that `drawBox` needs.
function viewOf(item) {
  const topHz = item.sample_rate_hz / 2;
  const lengthS = Math.min(Math.max(MIN_SPAN_S, (item.end_s - item.start_s) * 1.6), item.duration_s);
  const middleS = (item.start_s + item.end_s) / 2;
  const startS = Math.min(Math.max(0, middleS - lengthS / 2), item.duration_s - lengthS);
  const { low_hz, high_hz } = bandOf(item.boxes);
  const bandHz = Math.min(topHz, low_hz === null ? topHz : Math.max(8000, (high_hz - low_hz) * 2));
  const lowHz = low_hz === null ? 0 : Math.min(Math.max(0, (low_hz + high_hz) / 2 - bandHz / 2), topHz - bandHz);
  return {
    startS, endS: startS + lengthS, lowHz, highHz: lowHz + bandHz,
    x: (timeS) => ((timeS - startS) / lengthS) * WIDTH,
    y: (hz) => ((lowHz + bandHz - hz) / bandHz) * HEIGHT,
  };
}

function locationOf(item) {
  const score = item.boxes.length === 1 && item.boxes[0].score !== null ? ` · score ${item.boxes[0].score.toFixed(2)}` : '';
  return `${item.recording_id.split('/').slice(1).join('/')} · ${seconds(item.start_s)}${score}`;
}
