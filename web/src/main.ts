/** Starts the page. */

import { mount } from 'svelte';
import App from './App.svelte';
import { live } from './live/live.svelte';
import './page.css';

const target = document.getElementById('page');
if (target) {
    mount(App, { target });
    live.start();
}
