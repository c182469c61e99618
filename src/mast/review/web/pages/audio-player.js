// Audio playback of a span or of the frequency band of a box, slowed down for ultrasound.
import { fetchBlob } from './api.js';

export const SLOWDOWNS = [1, 2, 5, 10, 20];
const ULTRASOUND_HZ = 16000;

export class AudioPlayer {
  constructor({ changed, failed }) {
    Object.assign(this, { changed, failed });
    this.slow = 1;
    this.bandOnly = true;
    this.audio = new Audio();
    this.audio.addEventListener('ended', () => this.stop());
  }

  get isPlaying() { return Boolean(this.span); }

  // Ultrasound is slowed down automatically until the user chooses a speed.
  slowFor(recording, lowHz) {
    if (this.isSlowChosen) return this.slow;
    return recording.sample_rate_hz > 96000 && (lowHz === null || lowHz > ULTRASOUND_HZ) ? 10 : this.slow;
  }

  choose(slow) {
    this.slow = slow;
    this.isSlowChosen = true;
  }

  step(by) {
    const at = SLOWDOWNS.indexOf(this.slow) + by;
    this.choose(SLOWDOWNS[Math.min(Math.max(at, 0), SLOWDOWNS.length - 1)]);
  }

  async play(recording, span) {
    this.stop();
    const slow = this.slowFor(recording, span.low_hz ?? null);
    const band = this.bandOnly && span.low_hz !== null && span.low_hz !== undefined;
    const values = { recording_id: recording.recording_id, start_s: span.start_s, end_s: span.end_s, slow };
    const request = (this.request = new AbortController());
    try {
      const blob = await fetchBlob('/api/audio', band ? { ...values, low_hz: span.low_hz, high_hz: span.high_hz } : values, request.signal);
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

  // Playback position in seconds of the recording.
  get timeS() { return this.span.start_s + this.audio.currentTime / this.span.slow; }

  follow() {
    if (!this.span) return;
    this.changed();
    requestAnimationFrame(() => this.follow());
  }
}
