// Index of the boxes of a recording, sorted by start, so that only the visible boxes are visited.

export class BoxIndex {
  constructor(rows) {
    this.rows = [...rows].sort(byStart);
    this.changes = 0;
    this.longestS = this.rows.reduce((longest, box) => Math.max(longest, box.end_s - box.start_s), 0);
  }

  get(event_id) {
    return this.rows.find((box) => box.event_id === event_id);
  }

  // Replace the box with the same id, or add it; a box drawn by a user that is open again is removed.
  put(box) {
    this.changes += 1;
    this.rows = this.rows.filter((other) => other.event_id !== box.event_id);
    if (box.state === 'open' && isUserDrawn(box)) return;
    this.longestS = Math.max(this.longestS, box.end_s - box.start_s);
    this.rows.splice(this.firstFrom(box.start_s), 0, box);
  }

  // Events and spans between two times.
  between(startS, endS) {
    const near = this.rows.slice(this.firstFrom(startS - this.longestS), this.firstFrom(endS));
    return near.filter((box) => box.end_s > startS);
  }

  // The next (step > 0) or previous event by start, optionally only open events.
  neighbour(chosen, step, timeS, onlyOpen) {
    const events = this.rows.filter((box) => box.kind === 'sound' && (!onlyOpen || box.state === 'open'));
    if (!events.length) return null;
    const at = chosen ? chosen.start_s : timeS;
    const after = events.filter((box) => box.start_s > at || (chosen && box.start_s === at && box.event_id > chosen.event_id));
    const before = events.filter((box) => box.start_s < at || (chosen && box.start_s === at && box.event_id < chosen.event_id));
    return step > 0 ? after[0] || null : before[before.length - 1] || null;
  }

  firstFrom(timeS) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].start_s < timeS) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

export function isUserDrawn(box) {
  return box.event_id.startsWith('drawn-') || box.event_id.startsWith('span-');
}

function byStart(a, b) {
  return a.start_s - b.start_s || (a.event_id < b.event_id ? -1 : 1);
}
