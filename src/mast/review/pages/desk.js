// Deciding: what holds for a box from now on is put together here, sent, and can be taken back step by step.
import { isMadeHere } from './boxes.js';
import { Outbox } from './outbox.js';

export class Desk {
  // `shown` is called with every box that has changed, `notify` with what people should read.
  constructor(about, { shown, notify, state, signedOut, reload }) {
    Object.assign(this, { about, shown, notify, reload });
    this.steps = [];
    this.decided = about.decided;
    this.outbox = new Outbox(about.material, about.who, (what, news) => {
      if (what === 'state') state(news);
      if (what === 'signed-out') signedOut();
      if (what === 'not kept') this.notKept(news);
    });
  }

  // Let `changes` hold for a box; a box of version 0 with no one's word on it yet is the model's, or new.
  decide(box, changes, queue = null) {
    const after = { ...box, ...changes, version: box.version + 1, who: this.about.who };
    this.steps.push({ before: box, after, queue });
    this.put(after, queue, null, box);
    return after;
  }

  undo() {
    const step = this.steps.pop();
    if (!step) {
      this.notify('There is nothing to undo.');
      return null;
    }
    const { before, after, queue } = step;
    const back = { ...before, version: after.version + 1, who: this.about.who };
    const earlier = this.steps.findLast((other) => other.after.subject === back.subject);
    if (earlier) earlier.after = back; // which is how it stands now, as a later version
    this.put(back, queue, after.version, after);
    return back;
  }

  put(box, queue, undoes, before) {
    this.count(before, box);
    const { subject, version, kind, state, recording_id, start_s, end_s, low_hz, high_hz, label } = box;
    const proposal = { subject, version, kind, state, recording_id, start_s, end_s, low_hz, high_hz, label, queue, undoes };
    this.shown(box);
    this.outbox.add({ request_id: freshName(''), ...proposal });
  }

  // How many sounds are decided, once one that stood as `before` stands as `after`.
  count(before, after) {
    if (after.kind === 'sound') this.decided += (after.state !== 'open') - (before.state !== 'open');
  }

  // A verdict that the server does not take: the box stands as it was or, where somebody was faster, as they left it.
  // What was not kept cannot be undone either.
  notKept({ error, proposal }) {
    this.notify(error.message);
    const isOf = (step) => step.after.subject === proposal.subject;
    const gone = this.steps.filter(isOf);
    this.steps = this.steps.filter((step) => !isOf(step));
    const stands = error.holds || gone.find((step) => step.after.version >= proposal.version)?.before;
    if (stands && gone.length) this.count(gone.at(-1).after, stands);
    if (stands) this.shown(stands);
    if (!error.holds) this.reload(proposal);
  }

  // Boxes as they will stand once all that is unsent has arrived.
  withUnsent(boxes, recordingId) {
    const by = new Map(boxes.map((box) => [box.subject, box]));
    for (const [, proposal] of this.outbox.unsent()) {
      if (proposal.recording_id !== recordingId) continue;
      const known = by.get(proposal.subject) || { score: null };
      if ((known.version || 0) < proposal.version) by.set(proposal.subject, { ...known, ...proposal, who: this.about.who });
    }
    return [...by.values()].filter((box) => !(box.state === 'open' && isMadeHere(box)));
  }
}

export function freshName(prefix) {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return prefix + [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newBox(recording, span) {
  const sound = { subject: freshName('drawn-'), version: 0, kind: 'sound', state: 'open', label: null, score: null, who: null };
  return { ...sound, recording_id: recording.recording_id, ...span };
}

export function newSpan(recording, startS, endS) {
  const span = { subject: freshName('span-'), version: 0, kind: 'span', state: 'open', label: null, score: null, who: null };
  return { ...span, recording_id: recording.recording_id, start_s: startS, end_s: endS, low_hz: null, high_hz: null };
}
