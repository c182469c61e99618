// The boxes of a recording in the order of their start, so that only those on the screen are ever looked at.

export class Boxes {
  constructor(rows) {
    this.rows = [...rows].sort(byStart);
    this.changes = 0;
    this.longestS = this.rows.reduce((longest, box) => Math.max(longest, box.end_s - box.start_s), 0);
  }

  get(subject) {
    return this.rows.find((box) => box.subject === subject);
  }

  // Put a box in the place of the one of its name, or add it; a drawn one that is open again is gone.
  put(box) {
    this.changes += 1;
    this.rows = this.rows.filter((other) => other.subject !== box.subject);
    if (box.state === 'open' && isMadeHere(box)) return;
    this.longestS = Math.max(this.longestS, box.end_s - box.start_s);
    this.rows.splice(this.firstFrom(box.start_s), 0, box);
  }

  // Sounds and spans between two moments.
  between(startS, endS) {
    const near = this.rows.slice(this.firstFrom(startS - this.longestS), this.firstFrom(endS));
    return near.filter((box) => box.end_s > startS);
  }

  // The sound after or before another, by their starts; of what is still open only, if asked.
  neighbour(chosen, step, timeS, onlyOpen) {
    const sounds = this.rows.filter((box) => box.kind === 'sound' && (!onlyOpen || box.state === 'open'));
    if (!sounds.length) return null;
    const at = chosen ? chosen.start_s : timeS;
    const after = sounds.filter((box) => box.start_s > at || (chosen && box.start_s === at && box.subject > chosen.subject));
    const before = sounds.filter((box) => box.start_s < at || (chosen && box.start_s === at && box.subject < chosen.subject));
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

export function isMadeHere(box) {
  return box.subject.startsWith('drawn-') || box.subject.startsWith('span-');
}

function byStart(a, b) {
  return a.start_s - b.start_s || (a.subject < b.subject ? -1 : 1);
}
