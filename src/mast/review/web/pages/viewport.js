// The visible part of a recording, and conversions between seconds or Hz and pixels.

export const GUTTER = { left: 52, bottom: 26, top: 22, right: 8 };
const SHORTEST_S = 0.02;
const NARROWEST_HZ = 50;

export class Viewport {
  constructor(durationS, topHz) {
    this.durationS = durationS;
    this.topHz = topHz;
    this.startS = 0;
    this.endS = Math.min(durationS, topHz > 48000 ? 3 : 30); // bat calls are short
    this.lowHz = 0;
    this.highHz = topHz;
    this.width = 1;
    this.height = 1;
  }

  get spanS() { return this.endS - this.startS; }
  get bandHz() { return this.highHz - this.lowHz; }
  get plotWidth() { return Math.max(1, this.width - GUTTER.left - GUTTER.right); }
  get plotHeight() { return Math.max(1, this.height - GUTTER.top - GUTTER.bottom); }

  x(timeS) { return GUTTER.left + ((timeS - this.startS) / this.spanS) * this.plotWidth; }
  y(hz) { return GUTTER.top + ((this.highHz - hz) / this.bandHz) * this.plotHeight; }
  timeAt(x) { return this.startS + ((x - GUTTER.left) / this.plotWidth) * this.spanS; }
  hzAt(y) { return this.highHz - ((y - GUTTER.top) / this.plotHeight) * this.bandHz; }

  showTime(startS, endS) {
    const spanS = Math.min(Math.max(endS - startS, SHORTEST_S), this.durationS);
    this.startS = Math.min(Math.max(0, startS), this.durationS - spanS);
    this.endS = this.startS + spanS;
  }

  showBand(lowHz, highHz) {
    const bandHz = Math.min(Math.max(highHz - lowHz, NARROWEST_HZ), this.topHz);
    this.lowHz = Math.min(Math.max(0, lowHz), this.topHz - bandHz);
    this.highHz = this.lowHz + bandHz;
  }

  // Zoom by a factor (below 1 zooms in); the position of `timeS` or `hz` on the screen stays fixed.
  zoomTime(factor, timeS = (this.startS + this.endS) / 2) {
    const spanS = Math.min(Math.max(this.spanS * factor, SHORTEST_S), this.durationS);
    const fraction = (timeS - this.startS) / this.spanS;
    this.showTime(timeS - fraction * spanS, timeS + (1 - fraction) * spanS);
  }

  zoomBand(factor, hz = (this.lowHz + this.highHz) / 2) {
    const bandHz = Math.min(Math.max(this.bandHz * factor, NARROWEST_HZ), this.topHz);
    const fraction = (hz - this.lowHz) / this.bandHz;
    this.showBand(hz - fraction * bandHz, hz + (1 - fraction) * bandHz);
  }

  panTime(seconds) { this.showTime(this.startS + seconds, this.endS + seconds); }
  panBand(hz) { this.showBand(this.lowHz + hz, this.highHz + hz); }

  showAll() {
    this.showTime(0, this.durationS);
    this.showBand(0, this.topHz);
  }

  // Make a box visible with the smallest possible change of the view.
  reveal(box) {
    const lengthS = box.end_s - box.start_s;
    if (lengthS > this.spanS) this.showTime(box.start_s - lengthS * 0.1, box.end_s + lengthS * 0.1);
    else if (box.start_s < this.startS || box.end_s > this.endS) {
      const middleS = (box.start_s + box.end_s) / 2;
      this.showTime(middleS - this.spanS / 2, middleS + this.spanS / 2);
    }
    if (box.low_hz !== null && (box.low_hz < this.lowHz || box.high_hz > this.highHz)) {
      this.showBand(Math.min(this.lowHz, box.low_hz), Math.max(this.highHz, box.high_hz));
    }
  }
}
