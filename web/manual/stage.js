// stage.js ROOT STAGE copies the Markdown pages of the repository at ROOT into STAGE/pages, with their links made good
// for the manual. Files that a page links to, and that are no pages, come along. A directory that a page links to
// becomes a page that lists its files.
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'

const [root, stage] = process.argv.slice(2)
const out = join(stage, 'pages')

// Pages outside of docs, and where they are in the manual.
const places = new Map([
  ['docs/README.md', 'index.md'],
  ['CHANGELOG.md', 'changes.md'],
  ['CONTRIBUTING.md', 'develop/contributing.md'],
  ['test/lab/README.md', 'develop/lab.md'],
  ['images/node/README.md', 'develop/node-image.md'],
  ['images/release/README.md', 'develop/release-bundle.md'],
])
for (const role of readdirSync(join(root, 'playbooks/roles'))) {
  const page = `playbooks/roles/${role}/README.md`
  if (existsSync(join(root, page))) places.set(page, `reference/roles/${role}.md`)
}
for (const file of readdirSync(join(root, 'docs'), { recursive: true })) {
  const page = posix.join('docs', file.replaceAll('\\', '/'))
  if (page.endsWith('.md') && !places.has(page)) places.set(page, page.slice('docs/'.length))
}

const place = (path) => places.get(path) ?? (path.startsWith('docs/') ? path.slice('docs/'.length) : `files/${path}`)

function write(path, text) {
  mkdirSync(dirname(join(out, path)), { recursive: true })
  writeFileSync(join(out, path), text)
}

function publish(path) {
  const target = join(out, 'public', place(path))
  mkdirSync(dirname(target), { recursive: true })
  copyFileSync(join(root, path), target)
  return `/${place(path)}`
}

const listed = new Set()

// list makes a page of the directory's files and returns where it is.
function list(dir) {
  const page = posix.join(place(dir), 'index.md')
  if (!listed.has(dir)) {
    listed.add(dir)
    const files = readdirSync(join(root, dir)).filter((f) => statSync(join(root, dir, f)).isFile())
    const lines = files.map((f) => `- <a href="/docs${publish(posix.join(dir, f))}" target="_self">${f}</a>`)
    write(page, `# Files of ${place(dir)}\n\n${lines.join('\n')}\n`)
  }
  return page
}

// mend returns the rest of a link, from its target on, as it is in the manual. The browser opens files itself, not
// VitePress.
function mend(page, target, anchor) {
  const path = target === '' ? page : posix.join(posix.dirname(page), target).replace(/\/$/, '')
  if (target === '') return `${anchor})`
  if (path === 'README.md') return '/)'
  if (places.has(path)) return `/${places.get(path)}${anchor})`
  if (statSync(join(root, path)).isDirectory()) return `/${list(path)})`
  const file = publish(path)
  // VitePress puts /docs before pictures itself.
  return /\.(png|svg)$/.test(file) ? `${file})` : `/docs${file}){target="_self"}`
}

function convert(page, text) {
  let fence = ''
  return text.split('\n').map((line) => {
    const marker = line.trimStart().match(/^`{3,}/)?.[0] ?? ''
    if (fence) {
      if (marker.startsWith(fence)) fence = ''
      return line
    }
    if (marker) {
      fence = marker
      return line
    }
    return line.replace(/(\]\()([^)\s#]*)(#[^)\s]*)?\)/g, (whole, open, target, anchor = '') =>
      /^[a-z]+:/.test(target) || inCode(line, whole) ? whole : `${open}${mend(page, target, anchor)}`)
  }).join('\n')
}

const inCode = (line, part) => [...line.matchAll(/`[^`]*`/g)].some(([code]) => code.includes(part))

for (const [page, target] of places) write(target, convert(page, readFileSync(join(root, page), 'utf8')))
mkdirSync(join(out, 'public'), { recursive: true })
