// DOM helpers. Text is only set as text content, so that labels and file names can never inject HTML.

export const byId = (id) => document.getElementById(id);

export function make(tag, { text, className, title, click, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  if (title) element.title = title;
  if (click) element.addEventListener('click', click);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function toast(text) {
  const shown = make('div', { text, className: 'toast' });
  shown.addEventListener('click', () => shown.remove());
  byId('toasts').append(shown);
  setTimeout(() => shown.remove(), 8000);
}
