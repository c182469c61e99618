// Editing of boxes with the pointer or keys: label, draw, move, resize; and marking spans as reviewed.
import { newBox, newSpan } from './decisions.js';
import { toast } from './dom.js';
import { boundsOf, clipped, shifted } from './pointer-tools.js';

const STEPS = 100; // a key moves a box by 1 / STEPS of the visible span or band

export class BoxEditor {
  // `page` has queueOf(box), choose(box), stopDrawing() and failed(error).
  constructor(canvas, decisions, labels, page) {
    Object.assign(this, { canvas, decisions, labels, page });
  }

  // Changing an open box accepts it.
  change(box, changes) {
    return this.decisions.decide(box, { state: box.state === 'open' ? 'accepted' : box.state, ...changes }, this.page.queueOf(box));
  }

  async label() {
    const box = this.canvas.chosenBox;
    if (!box) return;
    const picked = await this.labels.pick(box.label);
    if (picked !== undefined) this.change(this.canvas.boxes.get(box.event_id) || box, { label: picked });
  }

  labelAgain() {
    const repeated = this.labels.repeat();
    if (repeated && this.canvas.chosenBox) this.change(this.canvas.chosenBox, { label: repeated });
  }

  place(box, bounds) {
    this.change(box, bounds);
  }

  draw(bounds) {
    this.page.stopDrawing();
    this.page.choose(this.change(newBox(this.canvas.recording, bounds), {}));
    this.label().catch(this.page.failed);
  }

  drawInMiddle() {
    const { view, recording } = this.canvas;
    const [timeS, hz] = [(view.startS + view.endS) / 2, (view.lowHz + view.highHz) / 2];
    const [halfS, halfHz] = [view.spanS / 20, view.bandHz / 10];
    const bounds = { start_s: timeS - halfS, end_s: timeS + halfS, low_hz: hz - halfHz, high_hz: hz + halfHz };
    this.page.choose(this.change(newBox(recording, clipped(bounds, recording)), {}));
  }

  // Move the whole box by one step, or only its end and its top.
  nudge(right, up, onlyEdge) {
    const { view, recording, chosenBox: box } = this.canvas;
    if (!box || box.kind !== 'sound') return;
    const [byS, byHz] = [(right * view.spanS) / STEPS, (up * view.bandHz) / STEPS];
    const [end_s, high_hz] = [Math.max(box.start_s + 0.002, box.end_s + byS), Math.max(box.low_hz + 10, box.high_hz + byHz)];
    this.place(box, onlyEdge ? clipped({ ...boundsOf(box), end_s, high_hz }, recording) : shifted(box, byS, byHz, recording));
  }

  reviewed(startS, endS) {
    const { boxes, recording } = this.canvas;
    const same = (box) => box.kind === 'span' && box.start_s === startS && box.end_s === endS;
    const span = boxes.rows.find(same) || newSpan(recording, startS, endS);
    this.decisions.decide(span, { state: 'accepted' }, this.page.queueOf(span));
    toast('Marked as fully reviewed.');
  }

  // Remove all reviewed marks that overlap the visible part.
  notReviewed() {
    const { view, boxes } = this.canvas;
    const marks = boxes.between(view.startS, view.endS).filter((box) => box.kind === 'span' && box.state === 'accepted');
    for (const span of marks) this.decisions.decide(span, { state: 'open' });
    toast(marks.length ? 'No longer marked as reviewed.' : 'No visible part is marked as reviewed.');
  }
}
