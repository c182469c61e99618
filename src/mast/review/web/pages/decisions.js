// Verdicts of the user: build and send each verdict, and undo them step by step.
import { isUserDrawn } from './box-index.js';
import { Outbox } from './outbox.js';

export class DecisionStore {
  // `shown` is called with every changed box, `notify` with messages for the user.
  constructor(about, { shown, notify, state, signedOut, reload }) {
    Object.assign(this, { about, shown, notify, reload });
    this.steps = [];
    this.decided = about.decided;
    this.outbox = new Outbox(about.material, about.user, (event, details) => {
      if (event === 'state') state(details);
      if (event === 'signed-out') signedOut();
      if (event === 'refused') this.restore(details);
    });
  }

  // Apply `changes` to a box; a box of version 0 is a detection without a verdict, or new.
  decide(box, changes, queue = null) {
    const after = { ...box, ...changes, version: box.version + 1, user: this.about.user };
    this.steps.push({ before: box, after, queue });
    this.put(after, queue, null, box);
    return after;
  }

  undo() {
    const step = this.steps.pop();
    if (!step) {
      this.notify('Nothing to undo.');
      return null;
    }
    const { before, after, queue } = step;
    const restored = { ...before, version: after.version + 1, user: this.about.user };
    const earlier = this.steps.findLast((other) => other.after.event_id === restored.event_id);
    if (earlier) earlier.after = restored; // the current state, as a later version
    this.put(restored, queue, after.version, after);
    return restored;
  }

  put(box, queue, reverts, before) {
    this.count(before, box);
    const { event_id, version, kind, state, recording_id, start_s, end_s, low_hz, high_hz, label } = box;
    const proposal = { event_id, version, kind, state, recording_id, start_s, end_s, low_hz, high_hz, label, queue, reverts };
    this.shown(box);
    this.outbox.add({ request_id: newId(''), ...proposal });
  }

  // Update the number of decided events after a change from `before` to `after`.
  count(before, after) {
    if (after.kind === 'sound') this.decided += (after.state !== 'open') - (before.state !== 'open');
  }

  // Handle a verdict that the server refused: restore the previous state of the box or, if another user was faster,
  // show that user's verdict. Remove the refused verdicts from the undo history.
  restore({ error, proposal }) {
    this.notify(error.message);
    const isOf = (step) => step.after.event_id === proposal.event_id;
    const removed = this.steps.filter(isOf);
    this.steps = this.steps.filter((step) => !isOf(step));
    const latest = error.current || removed.find((step) => step.after.version >= proposal.version)?.before;
    if (latest && removed.length) this.count(removed.at(-1).after, latest);
    if (latest) this.shown(latest);
    if (!error.current) this.reload(proposal);
  }

  // The boxes of a recording, updated with the unsent verdicts.
  withUnsent(boxes, recordingId) {
    const byId = new Map(boxes.map((box) => [box.event_id, box]));
    for (const [, proposal] of this.outbox.unsent()) {
      if (proposal.recording_id !== recordingId) continue;
      const current = byId.get(proposal.event_id) || { score: null };
      if ((current.version || 0) < proposal.version) byId.set(proposal.event_id, { ...current, ...proposal, user: this.about.user });
    }
    return [...byId.values()].filter((box) => !(box.state === 'open' && isUserDrawn(box)));
  }
}

export function newId(prefix) {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return prefix + [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newBox(recording, span) {
  const event = { event_id: newId('drawn-'), version: 0, kind: 'sound', state: 'open', label: null, score: null, user: null };
  return { ...event, recording_id: recording.recording_id, ...span };
}

export function newSpan(recording, startS, endS) {
  const span = { event_id: newId('span-'), version: 0, kind: 'span', state: 'open', label: null, score: null, user: null };
  return { ...span, recording_id: recording.recording_id, start_s: startS, end_s: endS, low_hz: null, high_hz: null };
}
