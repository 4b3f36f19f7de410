// budgets.js DIR: fails when the built console is heavier than budgets.json allows. What counts is what a browser
// fetches: compressed.
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

const dir = process.argv[2]
const budgets = JSON.parse(readFileSync(new URL('budgets.json', import.meta.url), 'utf8'))
const weight = (name) => gzipSync(readFileSync(join(dir, name)), { level: 9 }).length / 1000

const page = readFileSync(join(dir, 'index.html'), 'utf8')
const named = (kind) =>
  [...page.matchAll(/(?:src|href)="\/(assets\/[^"]+)"/g)].map((m) => m[1]).filter((n) => n.endsWith(kind))
const sum = (names) => names.reduce((n, name) => n + weight(name), 0)

const first = { js: named('.js'), css: named('.css') }
const lazy = readdirSync(join(dir, 'assets'))
  .map((n) => `assets/${n}`)
  .filter((n) => n.endsWith('.js') && !first.js.includes(n))
const found = [
  ['first JavaScript', sum(first.js), budgets.firstJavaScriptKB],
  ['first styles', sum(first.css), budgets.firstStylesKB],
  ['greatest lazy chunk', Math.max(0, ...lazy.map(weight)), budgets.lazyChunkKB],
]
let bad = first.js.length === 0 || first.css.length === 0
for (const [what, is, most] of found) {
  console.log(`console: ${what}: ${is.toFixed(0)} KB of ${most} KB`)
  bad ||= is > most
}
if (bad) {
  console.error('console: too heavy. Load what a page does not begin with when it is first used: import(), lazy().')
  process.exit(1)
}
