// Talking to the server: every answer is JSON, and every refusal has its reason in words.

export class Refusal extends Error {
  constructor(status, answer) {
    super(answer.told || `The server answered ${status}.`);
    this.status = status;
    this.holds = answer.holds;
  }
}

export function address(path, values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export async function ask(path, values = {}) {
  return answered(await fetch(address(path, values)));
}

export async function send(path, body) {
  const headers = { 'content-type': 'application/json' };
  return answered(await fetch(path, { method: 'POST', headers, body: JSON.stringify(body), keepalive: true }));
}

export async function fetchBlob(path, values, signal) {
  const response = await fetch(address(path, values), { signal });
  if (!response.ok) throw new Refusal(response.status, await response.json().catch(() => ({})));
  return response.blob();
}

async function answered(response) {
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(response.status, answer);
  return answer;
}
