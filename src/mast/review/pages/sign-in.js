// Signing in: a name and a password for a session in a cookie that no script can read.
import { send } from './server.js';

const form = document.getElementById('sign-in');
const told = document.getElementById('told');

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const button = form.querySelector('button');
  button.disabled = true;
  try {
    await send('/api/sign-in', { name: form.name.value, password: form.password.value });
    location.assign('/');
  } catch (error) {
    told.textContent = error.message;
    form.password.value = '';
  } finally {
    button.disabled = false;
  }
});
