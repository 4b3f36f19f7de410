import { Menu, MenuContent, MenuItem, MenuList, Modal, ModalBody, ModalHeader, TextInput } from '@patternfly/react-core'
import { useQuery } from '@tanstack/react-query'
import { useEffect, useState, type KeyboardEvent } from 'react'
import { useNavigate } from 'react-router'
import { api, client, json, list } from '../api/client'
import { kinds, type Kind } from '../forms/kinds'
import { sees, useMe } from './me'
import { placesOf } from './places'

// usePalette opens the palette at Ctrl-K, or Cmd-K.
export function usePalette() {
  const [isOpen, setOpen] = useState(false)
  useEffect(() => {
    const key = (e: globalThis.KeyboardEvent) => {
      if ((e.ctrlKey || e.metaKey) && !e.shiftKey && !e.altKey && e.key.toLowerCase() === 'k') {
        e.preventDefault()
        setOpen(true)
      }
    }
    addEventListener('keydown', key)
    return () => removeEventListener('keydown', key)
  }, [])
  return { isOpen, open: () => setOpen(true), close: () => setOpen(false) }
}

interface Found {
  to: string
  text: string
  kind: string
}

// Palette goes to anything that has a name, or to a plan by its id.
export function Palette({ close }: { close: () => void }) {
  const navigate = useNavigate()
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const found = useFound(text.trim().toLowerCase())
  const chosen = Math.min(at, found.length - 1)
  const go = (to: string) => {
    close()
    void navigate(to)
  }
  const key = (e: KeyboardEvent) => {
    if (e.key === 'ArrowDown') setAt(Math.min(chosen + 1, found.length - 1))
    else if (e.key === 'ArrowUp') setAt(Math.max(chosen - 1, 0))
    else if (e.key === 'Enter' && found[chosen]) go(found[chosen].to)
    else return
    e.preventDefault()
  }
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="palette-title" elementToFocus="#palette">
      <ModalHeader title="Go to" labelId="palette-title" />
      <ModalBody>
        <TextInput
          id="palette"
          type="search"
          value={text}
          aria-label="Page, or name of anything"
          onKeyDown={key}
          placeholder="A page, a name, or the beginning of a plan's id"
          onChange={(_, v) => {
            setText(v)
            setAt(0)
          }}
        />
        <Menu onSelect={(_, id) => go(String(id))} isPlain>
          <MenuContent>
            <MenuList>
              {found.map((f, i) => (
                <MenuItem key={`${f.to} ${f.text}`} itemId={f.to} description={f.kind} isFocused={i === chosen}>
                  {f.text}
                </MenuItem>
              ))}
              {found.length === 0 && <MenuItem isDisabled>Nothing has this name.</MenuItem>}
            </MenuList>
          </MenuContent>
        </Menu>
      </ModalBody>
    </Modal>
  )
}

const few = 5 // of each kind

// useFound looks for the word in the pages, and in the names of everything that there is.
function useFound(word: string): Found[] {
  const me = useMe()
  const asks = { enabled: word !== '', staleTime: 5000 }
  const clusters = api.useQuery(
    'get',
    '/clusters',
    { params: { query: { q: word, limit: 8, fields: ['name', 'status'] } } },
    asks,
  )
  const nodes = api.useQuery(
    'get',
    '/nodes',
    { params: { query: { q: word, limit: few, fields: ['name', 'cluster', 'condition'] } } },
    { ...asks, enabled: word.length >= 2 },
  )
  const plans = api.useQuery(
    'get',
    '/plans',
    { params: { query: { id_prefix: word, limit: few, fields: ['id', 'summary', 'status'] } } },
    { ...asks, enabled: word.length >= 3 },
  )
  const named = useNamed(word.length >= 2)
  const has = (name: string) => name.toLowerCase().includes(word)
  const pages = placesOf(me).filter((p) => has(p.text))
  if (word === '') return pages.map((p) => ({ ...p, kind: 'page' }))
  return [
    ...pages.map((p) => ({ ...p, kind: 'page' })),
    ...list(clusters.data?.items).map((c) => ({
      to: `/clusters/${c.name}`,
      text: c.name,
      kind: `cluster, ${c.status}`,
    })),
    ...list(nodes.data?.items).map((n) => ({
      to: `/clusters/${n.cluster}/nodes/${n.name}`,
      text: n.name,
      kind: `node of ${n.cluster}, ${n.condition}`,
    })),
    ...list(plans.data?.items).map((p) => ({ to: `/plans/${p.id}`, text: p.summary, kind: `plan, ${p.status}` })),
    ...(word.length < 2 ? [] : named.filter((n) => has(n.text)).slice(0, 3 * few)),
  ]
}

// useNamed are documents, campaigns and users: few enough to be asked for once, and searched here.
function useNamed(enabled: boolean): Found[] {
  const me = useMe()
  const asked = useQuery({
    queryKey: ['palette'],
    enabled,
    staleTime: 60_000,
    queryFn: async () => {
      const described = await Promise.all(
        (sees(me, 'documents') ? kinds : []).filter((k) => k !== 'Cluster').map((kind) => documentsOf(kind)),
      )
      return [...(await campaigns()), ...described.flat(), ...(sees(me, 'users') ? await users() : [])]
    },
  })
  return asked.data ?? []
}

// What the user may not see is not found.
async function documentsOf(kind: Kind): Promise<Found[]> {
  const answer = await client.GET('/documents/{kind}', {
    params: { path: { kind }, query: { limit: 200, fields: ['name'] } },
  })
  const items = answer.data ? list(json(answer.data).items) : []
  return items.map((d) => ({ to: `/documents/${kind}/${d.name}`, text: d.name, kind }))
}

async function campaigns(): Promise<Found[]> {
  const answer = await client.GET('/campaigns')
  return list(answer.data?.items).map((c) => ({
    to: `/campaigns/${c.id}`,
    text: c.name,
    kind: `campaign, ${c.status}`,
  }))
}

async function users(): Promise<Found[]> {
  const answer = await client.GET('/users', { params: { query: { limit: 500 } } })
  return list(answer.data?.items).map((u) => ({ to: '/users', text: u.name, kind: `user, ${u.role}` }))
}
