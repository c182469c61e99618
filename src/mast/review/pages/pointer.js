// Fingers, pens and mice on the spectrogram: choose, move, resize and draw boxes; pan, and zoom with a wheel or two fingers.

const LEAST_PX = 5;
const TOUCH_PX = 16;

export class Pointer {
  // `edit` has choose(box), place(box, bounds) and draw(bounds).
  constructor(stage, edit) {
    Object.assign(this, { stage, edit });
    this.drawing = false;
    this.down = new Map();
    const { canvas } = stage;
    canvas.addEventListener('pointerdown', (event) => this.press(event));
    canvas.addEventListener('pointermove', (event) => this.move(event));
    for (const name of ['pointerup', 'pointercancel']) canvas.addEventListener(name, (event) => this.release(event));
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    const jump = (event) => event.buttons && this.jump(event);
    stage.overview.addEventListener('pointerdown', jump);
    stage.overview.addEventListener('pointermove', jump);
  }

  setDrawing(on) {
    this.drawing = on;
    this.stage.canvas.classList.toggle('drawing', on);
  }

  press(event) {
    const { stage } = this;
    if (!stage.recording) return;
    stage.canvas.setPointerCapture(event.pointerId);
    const at = { x: event.offsetX, y: event.offsetY };
    this.down.set(event.pointerId, at);
    if (this.down.size === 2) {
      this.cancelDrag();
      return;
    }
    const hit = stage.under(at.x, at.y, event.pointerType === 'touch' ? TOUCH_PX : undefined);
    const draws = (this.drawing || event.shiftKey) && !(hit && hit.edges);
    const kind = draws ? 'draw' : hit && (hit.edges || hit.box.subject === stage.chosen) ? 'place' : 'pan';
    this.drag = { kind, hit, from: at, last: at, moved: false };
  }

  move(event) {
    const { stage, drag } = this;
    if (!stage.recording) return;
    const at = { x: event.offsetX, y: event.offsetY };
    if (!this.down.has(event.pointerId)) {
      this.hover(at);
      return;
    }
    const before = this.down.get(event.pointerId);
    this.down.set(event.pointerId, at);
    if (this.down.size === 2) this.pinch(event.pointerId, before, at);
    if (!drag) return;
    drag.moved ||= Math.hypot(at.x - drag.from.x, at.y - drag.from.y) > LEAST_PX;
    if (drag.moved) this.dragTo(at);
    drag.last = at;
    stage.redraw();
  }

  dragTo(at) {
    const { stage, drag } = this;
    const { view } = stage;
    if (drag.kind === 'pan') {
      view.panTime(view.timeAt(drag.last.x) - view.timeAt(at.x));
      view.panBand(view.hzAt(drag.last.y) - view.hzAt(at.y));
    } else if (drag.kind === 'draw') {
      stage.ghost = ordered(view, drag.from, at, stage.recording);
    } else {
      stage.moved = { ...drag.hit.box, ...movedBounds(drag.hit, view, drag.from, at, stage.recording) };
    }
  }

  release(event) {
    const { stage, drag } = this;
    this.down.delete(event.pointerId);
    if (!drag) return;
    const { ghost, moved } = stage;
    this.cancelDrag();
    if (event.type === 'pointercancel') return;
    if (!drag.moved) {
      if (drag.kind !== 'draw') this.edit.choose(drag.hit ? drag.hit.box : null);
    } else if (drag.kind === 'draw' && ghost) {
      this.edit.draw(ghost);
    } else if (drag.kind === 'place' && moved) {
      this.edit.place(drag.hit.box, boundsOf(moved));
    }
  }

  cancelDrag() {
    this.drag = null;
    this.stage.ghost = null;
    this.stage.moved = null;
    this.stage.redraw();
  }

  pinch(moving, before, after) {
    const { view } = this.stage;
    const [, other] = [...this.down].find(([id]) => id !== moving);
    const [wideBefore, wide] = [Math.abs(before.x - other.x), Math.abs(after.x - other.x)];
    const [tallBefore, tall] = [Math.abs(before.y - other.y), Math.abs(after.y - other.y)];
    const [middleX, middleY] = [(after.x + other.x) / 2, (after.y + other.y) / 2];
    if (wideBefore > 40 && wide > 40) view.zoomTime(wideBefore / wide, view.timeAt(middleX));
    if (tallBefore > 40 && tall > 40) view.zoomBand(tallBefore / tall, view.hzAt(middleY));
    view.panTime(view.timeAt((before.x - after.x) / 2) - view.timeAt(0));
    this.stage.redraw();
  }

  wheel(event) {
    const { stage } = this;
    if (!stage.recording) return;
    event.preventDefault();
    const { view } = stage;
    const amount = (event.deltaY || event.deltaX) * (event.deltaMode ? 30 : 1);
    const factor = Math.exp(Math.min(Math.max(amount, -300), 300) / 400);
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.panTime((amount / view.plotWidth) * view.spanS);
    else if (event.altKey || event.ctrlKey) view.zoomBand(factor, view.hzAt(event.offsetY));
    else view.zoomTime(factor, view.timeAt(event.offsetX));
    stage.redraw();
  }

  hover(at) {
    const hit = this.stage.under(at.x, at.y);
    this.stage.canvas.style.cursor = this.drawing ? '' : hit && hit.edges ? cursorOf(hit.edges) : hit ? 'pointer' : '';
  }

  jump(event) {
    const { stage } = this;
    if (!stage.recording) return;
    const middleS = (event.offsetX / stage.overview.clientWidth) * stage.recording.duration_s;
    stage.view.showTime(middleS - stage.view.spanS / 2, middleS + stage.view.spanS / 2);
    stage.redraw();
  }
}

export function boundsOf({ start_s, end_s, low_hz, high_hz }) {
  return { start_s, end_s, low_hz, high_hz };
}

// Bounds within the recording, the right way round, and not thinner than can be seen.
export function tidy(bounds, recording) {
  const topHz = recording.sample_rate_hz / 2;
  const [start, end] = [bounds.start_s, bounds.end_s].sort((a, b) => a - b);
  const [low, high] = [bounds.low_hz, bounds.high_hz].sort((a, b) => a - b);
  const start_s = Math.min(Math.max(0, start), recording.duration_s - 0.002);
  const low_hz = Math.min(Math.max(0, low), topHz - 10);
  return {
    start_s, end_s: Math.min(Math.max(end, start_s + 0.002), recording.duration_s),
    low_hz, high_hz: Math.min(Math.max(high, low_hz + 10), topHz),
  };
}

function ordered(view, from, to, recording) {
  const [start_s, end_s] = [view.timeAt(from.x), view.timeAt(to.x)];
  const [low_hz, high_hz] = [view.hzAt(from.y), view.hzAt(to.y)];
  return tidy({ start_s, end_s, low_hz, high_hz }, recording);
}

function movedBounds({ box, edges }, view, from, to, recording) {
  const byS = view.timeAt(to.x) - view.timeAt(from.x);
  const byHz = view.hzAt(to.y) - view.hzAt(from.y);
  if (!edges) return shifted(box, byS, byHz, recording);
  const bounds = boundsOf(box);
  for (const side of ['start_s', 'end_s']) if (edges[side]) bounds[side] += byS;
  for (const side of ['low_hz', 'high_hz']) if (edges[side]) bounds[side] += byHz;
  return tidy(bounds, recording);
}

// A box moved as a whole, no further than the recording reaches.
export function shifted(box, byS, byHz, recording) {
  const topHz = recording.sample_rate_hz / 2;
  const s = Math.min(Math.max(byS, -box.start_s), recording.duration_s - box.end_s);
  const hz = Math.min(Math.max(byHz, -box.low_hz), topHz - box.high_hz);
  return { start_s: box.start_s + s, end_s: box.end_s + s, low_hz: box.low_hz + hz, high_hz: box.high_hz + hz };
}

function cursorOf({ start_s: left, end_s: right, high_hz: top, low_hz: bottom }) {
  if ((left && top) || (right && bottom)) return 'nwse-resize';
  if ((right && top) || (left && bottom)) return 'nesw-resize';
  return left || right ? 'ew-resize' : 'ns-resize';
}
