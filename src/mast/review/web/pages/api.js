// Requests to the server: every response is JSON, and every error response has a message.

export class RequestError extends Error {
  constructor(status, body) {
    super(body.message || `The server responded with status ${status}.`);
    this.status = status;
    this.current = body.current;
  }
}

export function address(path, values) {
  const defined = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return defined.length ? `${path}?${new URLSearchParams(defined)}` : path;
}

export async function getJson(path, values = {}) {
  return parsed(await fetch(address(path, values)));
}

export async function send(path, body) {
  const headers = { 'content-type': 'application/json' };
  return parsed(await fetch(path, { method: 'POST', headers, body: JSON.stringify(body), keepalive: true }));
}

export async function fetchBlob(path, values, signal) {
  const response = await fetch(address(path, values), { signal });
  if (!response.ok) throw new RequestError(response.status, await response.json().catch(() => ({})));
  return response.blob();
}

async function parsed(response) {
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new RequestError(response.status, body);
  return body;
}
