import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  plugins: [react()],
  // The director puts a nonce of its own here in each answer: director/console.
  html: { cspNonce: '__CSP_NONCE__' },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0, // fonts and images stay files, as the content policy wants them
    chunkSizeWarningLimit: 800, // budgets.json has the real limits, of what is compressed
  },
  server: {
    // npx vite, beside a rehearsing director: changes of the source show at once.
    proxy: { '/api': { target: 'https://127.0.0.1:8443', secure: false } },
  },
  // A file that needs a page says so in its first line: making one takes longer than most tests.
  test: { include: ['src/**/*.test.{ts,tsx}'], testTimeout: 60_000 },
})
