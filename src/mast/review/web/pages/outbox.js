// Queue of unsent verdicts: stored in the browser and sent again until the server confirms them.
// Each verdict has a request id, so that a verdict sent twice is stored once.
import { send } from './api.js';

const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 15000;

export class Outbox {
  // `notify` is called with the event (`stored`, `refused`, `signed-out` or `state`) and its details.
  constructor(material, user, notify) {
    this.prefix = `mast unsent ${material} ${encodeURIComponent(user)} `; // user names may contain spaces
    this.notify = notify;
    this.memory = new Map(); // for browsers that block local storage
    this.waitMs = FIRST_WAIT_MS;
    this.sending = false;
    window.addEventListener('online', () => this.flush());
  }

  add(proposal) {
    const key = `${this.prefix}${String(Date.now()).padStart(15, '0')} ${String(counter++).padStart(6, '0')}`;
    try {
      localStorage.setItem(key, JSON.stringify(proposal));
    } catch {
      this.memory.set(key, proposal);
    }
    this.flush();
  }

  // [key, proposal] of all unsent verdicts, oldest first.
  unsent() {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(this.prefix));
    const all = new Map(keys.map((key) => [key, JSON.parse(localStorage.getItem(key))]));
    for (const [key, proposal] of this.memory) all.set(key, proposal);
    return [...all].filter(([, proposal]) => proposal).sort(([a], [b]) => (a < b ? -1 : 1));
  }

  async flush() {
    if (this.sending) return;
    this.sending = true;
    clearTimeout(this.timer);
    let isOnline = true;
    for (let left = this.unsent(); left.length && isOnline; left = this.unsent()) {
      this.notifyState(true);
      isOnline = await this.sendFirst(left);
    }
    this.sending = false;
    this.notifyState(isOnline);
    if (!isOnline) {
      this.timer = setTimeout(() => this.flush(), this.waitMs);
      this.waitMs = Math.min(this.waitMs * 2, MAX_WAIT_MS);
    } else {
      this.waitMs = FIRST_WAIT_MS;
    }
  }

  // Send the first verdict; return false if it must be sent again later.
  async sendFirst([[key, proposal], ...later]) {
    try {
      const stored = await send('/api/verdicts', proposal);
      this.remove(key);
      this.notify('stored', { stored, proposal });
    } catch (error) {
      if (!error.status || error.status >= 500) return false;
      if (error.status === 401) {
        this.notify('signed-out', { error });
        return false;
      }
      // later verdicts on the same event depend on this one, so remove them, too
      this.remove(key);
      for (const [other, next] of later) if (next.event_id === proposal.event_id) this.remove(other);
      this.notify('refused', { error, proposal });
    }
    return true;
  }

  remove(key) {
    localStorage.removeItem(key);
    this.memory.delete(key);
  }

  notifyState(isOnline) {
    this.notify('state', { count: this.unsent().length, isOnline });
  }
}

let counter = 0;
