// Axes of a spectrogram: kHz on the left, seconds below, local time above.
import { GUTTER } from './viewport.js';

export const INK = '#cfc8da';

export function drawAxes(context, view, startLocal) {
  context.fillStyle = INK;
  context.strokeStyle = '#ffffff14';
  context.font = '12px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  for (const hz of ticks(view.lowHz, view.highHz, view.plotHeight / 45)) {
    const y = view.y(hz);
    context.fillText(`${trimmed(hz / 1000)}${hz === 0 ? ' kHz' : ''}`, GUTTER.left - 6, Math.min(y, view.height - GUTTER.bottom - 6));
    line(context, GUTTER.left, y, view.width - GUTTER.right, y);
  }
  context.textAlign = 'center';
  const times = ticks(view.startS, view.endS, view.plotWidth / 110);
  const stepS = times.length > 1 ? times[1] - times[0] : 1;
  for (const timeS of times) {
    const x = view.x(timeS);
    if (x < GUTTER.left + 12 || x > view.width - 30) continue;
    context.textBaseline = 'top';
    context.fillText(seconds(timeS, stepS), x, view.height - GUTTER.bottom + 6);
    context.textBaseline = 'bottom';
    if (startLocal) context.fillText(clock(startLocal, timeS, stepS), x, GUTTER.top - 5);
    line(context, x, GUTTER.top, x, view.height - GUTTER.bottom);
  }
}

// Format seconds as m:ss, with the decimals that the step needs.
export function seconds(timeS, stepS = 0.1) {
  const decimals = stepS >= 1 ? 0 : stepS >= 0.1 ? 1 : stepS >= 0.01 ? 2 : 3;
  const minutes = Math.floor(timeS / 60 + 1e-9);
  const rest = Math.max(0, timeS - 60 * minutes).toFixed(decimals);
  const padded = rest.padStart(decimals ? decimals + 3 : 2, '0');
  return minutes >= 60 ? `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, '0')}:${padded}` : `${minutes}:${padded}`;
}

// Format the local time of the recorder; it has no time zone.
export function clock(startLocal, timeS, stepS = 1) {
  const at = new Date(Date.parse(`${startLocal}Z`) + timeS * 1000);
  return at.toISOString().slice(11, stepS >= 1 ? 19 : 21);
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(2, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const positions = [];
  for (let at = Math.ceil(low / step); at * step <= high; at++) positions.push(at * step);
  return positions;
}

function trimmed(value) {
  return String(Number(value.toFixed(3)));
}

function line(context, fromX, fromY, toX, toY) {
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
}
