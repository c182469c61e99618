// Sign-in form; the server stores the session in a cookie that scripts cannot read.
import { send } from './api.js';

const form = document.getElementById('sign-in');
const message = document.getElementById('message');

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const button = form.querySelector('button');
  button.disabled = true;
  try {
    await send('/api/sign-in', { name: form.name.value, password: form.password.value });
    location.assign('/');
  } catch (error) {
    message.textContent = error.message;
    form.password.value = '';
  } finally {
    button.disabled = false;
  }
});
