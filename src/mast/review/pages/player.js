// Listening: a span, or only the band of a box, as slowly as ears need it.
import { fetchBlob } from './server.js';

export const SLOWER = [1, 2, 5, 10, 20];
const ULTRASOUND_HZ = 16000;

export class Player {
  constructor({ changed, failed }) {
    Object.assign(this, { changed, failed });
    this.slow = 1;
    this.bandOnly = true;
    this.audio = new Audio();
    this.audio.addEventListener('ended', () => this.stop());
  }

  get isPlaying() { return Boolean(this.span); }

  // Ultrasound is slowed down by itself, until someone says how slow.
  slowFor(recording, lowHz) {
    if (this.slowChosen) return this.slow;
    return recording.sample_rate_hz > 96000 && (lowHz === null || lowHz > ULTRASOUND_HZ) ? 10 : this.slow;
  }

  choose(slow) {
    this.slow = slow;
    this.slowChosen = true;
  }

  step(by) {
    const at = SLOWER.indexOf(this.slow) + by;
    this.choose(SLOWER[Math.min(Math.max(at, 0), SLOWER.length - 1)]);
  }

  async play(recording, span) {
    this.stop();
    const slow = this.slowFor(recording, span.low_hz ?? null);
    const band = this.bandOnly && span.low_hz !== null && span.low_hz !== undefined;
    const values = { recording_id: recording.recording_id, start_s: span.start_s, end_s: span.end_s, slow };
    const request = (this.request = new AbortController());
    try {
      const blob = await fetchBlob('/api/sound', band ? { ...values, low_hz: span.low_hz, high_hz: span.high_hz } : values, request.signal);
      this.url = URL.createObjectURL(blob);
      this.audio.src = this.url;
      this.span = { start_s: span.start_s, slow };
      await this.audio.play();
      this.follow();
    } catch (error) {
      if (error.name === 'AbortError') return;
      this.stop();
      this.failed(error);
    }
  }

  stop() {
    if (this.request) this.request.abort();
    this.audio.pause();
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = this.span = null;
    this.changed();
  }

  // Where in the recording the sound is now, in its own seconds.
  get timeS() { return this.span.start_s + this.audio.currentTime / this.span.slow; }

  follow() {
    if (!this.span) return;
    this.changed();
    requestAnimationFrame(() => this.follow());
  }
}
