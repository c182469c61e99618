// Changing boxes: naming, drawing, moving and resizing them, by hand or by keys, and marking spans as reviewed.
import { newBox, newSpan } from './desk.js';
import { toast } from './dom.js';
import { boundsOf, shifted, tidy } from './pointer.js';

const STEPS = 100; // a key moves a box by one of so many parts of what is on the screen

export class Editing {
  // `page` has queueOf(box), choose(box), stopDrawing() and failed(error).
  constructor(stage, desk, names, page) {
    Object.assign(this, { stage, desk, names, page });
  }

  // Whoever changes a box that nobody has decided says that there is a sound.
  change(box, changes) {
    return this.desk.decide(box, { state: box.state === 'open' ? 'accepted' : box.state, ...changes }, this.page.queueOf(box));
  }

  async label() {
    const box = this.stage.chosenBox;
    if (!box) return;
    const said = await this.names.ask(box.label);
    if (said !== undefined) this.change(this.stage.boxes.get(box.subject) || box, { label: said });
  }

  labelAgain() {
    const said = this.names.again();
    if (said && this.stage.chosenBox) this.change(this.stage.chosenBox, { label: said });
  }

  place(box, bounds) {
    this.change(box, bounds);
  }

  draw(bounds) {
    this.page.stopDrawing();
    this.page.choose(this.change(newBox(this.stage.recording, bounds), {}));
    this.label().catch(this.page.failed);
  }

  drawInMiddle() {
    const { view, recording } = this.stage;
    const [timeS, hz] = [(view.startS + view.endS) / 2, (view.lowHz + view.highHz) / 2];
    const [halfS, halfHz] = [view.spanS / 20, view.bandHz / 10];
    const bounds = { start_s: timeS - halfS, end_s: timeS + halfS, low_hz: hz - halfHz, high_hz: hz + halfHz };
    this.page.choose(this.change(newBox(recording, tidy(bounds, recording)), {}));
  }

  // One step of the whole box, or of its end and its top.
  nudge(right, up, onlyEdge) {
    const { view, recording, chosenBox: box } = this.stage;
    if (!box || box.kind !== 'sound') return;
    const [byS, byHz] = [(right * view.spanS) / STEPS, (up * view.bandHz) / STEPS];
    const [end_s, high_hz] = [Math.max(box.start_s + 0.002, box.end_s + byS), Math.max(box.low_hz + 10, box.high_hz + byHz)];
    this.place(box, onlyEdge ? tidy({ ...boundsOf(box), end_s, high_hz }, recording) : shifted(box, byS, byHz, recording));
  }

  reviewed(startS, endS) {
    const { boxes, recording } = this.stage;
    const same = (box) => box.kind === 'span' && box.start_s === startS && box.end_s === endS;
    const span = boxes.rows.find(same) || newSpan(recording, startS, endS);
    this.desk.decide(span, { state: 'accepted' }, this.page.queueOf(span));
    toast('Marked as wholly reviewed.');
  }

  // Every mark that reaches into what is on the screen is taken back.
  notReviewed() {
    const { view, boxes } = this.stage;
    const marks = boxes.between(view.startS, view.endS).filter((box) => box.kind === 'span' && box.state === 'accepted');
    for (const span of marks) this.desk.decide(span, { state: 'open' });
    toast(marks.length ? 'No longer marked as reviewed.' : 'Nothing on the screen is marked as reviewed.');
  }
}
