// Compiler options of Svelte, for the build and for svelte-check.
import { vitePreprocess } from '@sveltejs/vite-plugin-svelte';

export default { compilerOptions: { runes: true }, preprocess: vitePreprocess() };
