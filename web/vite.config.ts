// Builds the page: one script and one style sheet with fixed names, so that an upgrade never mixes versions.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

export default defineConfig({
    base: './',
    plugins: [svelte({ compilerOptions: { css: 'external', runes: true } })],
    build: {
        target: 'es2023',
        outDir: 'dist',
        emptyOutDir: true,
        assetsInlineLimit: 0,
        cssCodeSplit: false,
        modulePreload: false,
        sourcemap: false,
        reportCompressedSize: true,
        license: { fileName: 'licences.md' },
        rolldownOptions: {
            output: {
                codeSplitting: false,
                entryFileNames: 'page.js',
                assetFileNames: 'page[extname]',
            },
        },
    },
});
