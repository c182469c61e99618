// Verdicts on their way: kept in the browser until the server has them, and sent again until it says so.
// Each has a request id of its own, so that sending it twice is not deciding twice.
import { send } from './server.js';

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;

export class Outbox {
  // `told` is called with `kept`, `not kept`, `signed-out` or `state`, and what there is to say.
  constructor(material, who, told) {
    this.prefix = `mast unsent ${material} ${encodeURIComponent(who)} `; // names may have spaces
    this.told = told;
    this.memory = new Map(); // where the browser lets no page keep anything
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

  // [key, proposal] of all that is unsent, in the order in which it was decided.
  unsent() {
    const kept = Object.keys(localStorage).filter((key) => key.startsWith(this.prefix));
    const all = new Map(kept.map((key) => [key, JSON.parse(localStorage.getItem(key))]));
    for (const [key, proposal] of this.memory) all.set(key, proposal);
    return [...all].filter(([, proposal]) => proposal).sort(([a], [b]) => (a < b ? -1 : 1));
  }

  async flush() {
    if (this.sending) return;
    this.sending = true;
    clearTimeout(this.timer);
    let reached = true;
    for (let left = this.unsent(); left.length && reached; left = this.unsent()) {
      this.tellState(true);
      reached = await this.sendFirst(left);
    }
    this.sending = false;
    this.tellState(reached);
    if (!reached) {
      this.timer = setTimeout(() => this.flush(), this.waitMs);
      this.waitMs = Math.min(this.waitMs * 2, LONGEST_WAIT_MS);
    } else {
      this.waitMs = FIRST_WAIT_MS;
    }
  }

  // Send the first of them; false where the server could not be reached, and it has to wait.
  async sendFirst([[key, proposal], ...later]) {
    try {
      const kept = await send('/api/verdicts', proposal);
      this.remove(key);
      this.told('kept', { kept, proposal });
    } catch (error) {
      if (!error.status || error.status >= 500) return false;
      if (error.status === 401) {
        this.told('signed-out', { error });
        return false;
      }
      // whatever was decided on top of it cannot hold either
      this.remove(key);
      for (const [other, next] of later) if (next.subject === proposal.subject) this.remove(other);
      this.told('not kept', { error, proposal });
    }
    return true;
  }

  remove(key) {
    localStorage.removeItem(key);
    this.memory.delete(key);
  }

  tellState(reached) {
    this.told('state', { count: this.unsent().length, reached });
  }
}

let counter = 0;
