import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const pages = join(dirname(fileURLToPath(import.meta.url)), '..', 'pages')

// The groups of the manual, with their pages in the order of reading. A page that is not named here comes last in its
// group.
const groups = [
  { text: 'Start', dir: 'start', first: ['first-cluster', 'own-hypervisor', 'appliance', 'simulate'] },
  {
    text: 'Use',
    dir: 'use',
    first: [
      'plans', 'campaigns', 'nodes', 'vms', 'disks', 'images', 'networks', 'providers', 'checks', 'ledger', 'schedules',
    ],
  },
  {
    text: 'Operate',
    dir: 'operate',
    first: ['libvirt', 'vsphere', 'appliance', 'monitor', 'backup', 'high-availability', 'security', 'cis'],
  },
  {
    text: 'Reference',
    dir: 'reference',
    first: ['glossary', 'models', 'api', 'state-machine', 'playbooks', 'causes', 'backends'],
  },
  { text: 'Roles', dir: 'reference/roles', first: [] },
  {
    text: 'Develop', dir: 'develop',
    first: [
      'architecture', 'contributing', 'writing-a-kind', 'writing-a-step', 'writing-a-backend', 'writing-a-playbook',
    ],
  },
]

function title(file) {
  const heading = readFileSync(file, 'utf8').match(/^# (.+)$/m)
  if (!heading) throw new Error(`${file} has no heading`)
  return heading[1].replaceAll('`', '')
}

function sidebar({ text, dir, first }) {
  const names = readdirSync(join(pages, dir)).filter((f) => f.endsWith('.md')).map((f) => f.slice(0, -3))
  const rank = (name) => (first.includes(name) ? first.indexOf(name) : first.length)
  names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b))
  return { text, items: names.map((n) => ({ text: title(join(pages, dir, `${n}.md`)), link: `/${dir}/${n}` })) }
}

export default {
  title: 'Director',
  description: 'Kubernetes clusters on hypervisors you already own',
  lang: 'en',
  base: '/docs/',
  srcDir: 'pages',
  cleanUrls: true,
  ignoreDeadLinks: [(url) => existsSync(join(pages, 'public', url))],
  metaChunk: true, // keeps the index of the pages out of every page
  buildConcurrency: 1, // the index of the search has its entries in the order in which pages were read
  head: [['link', { rel: 'icon', href: '/docs/favicon.svg' }]],
  // Colours of code that can be read on both backgrounds.
  markdown: { anchor: { slugify }, theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' } },
  themeConfig: {
    search: { provider: 'local' },
    outline: { level: [2, 3] },
    sidebar: groups.filter(({ dir }) => existsSync(join(pages, dir))).map(sidebar),
    nav: [
      { text: 'Start', link: '/start/first-cluster' },
      { text: 'Models', link: '/reference/models' },
      { text: 'API', link: '/reference/api' },
      { text: 'Changes', link: '/changes' },
    ],
  },
}

// Anchors are those of GitHub, which the tests of the links know.
function slugify(text) {
  return text.trim().toLowerCase().replace(/[^\p{L}\p{N}\-_ ]/gu, '').replaceAll(' ', '-')
}
