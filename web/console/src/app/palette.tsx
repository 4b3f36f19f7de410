import { Menu, MenuContent, MenuItem, MenuList, Modal, ModalBody, ModalHeader, TextInput } from '@patternfly/react-core'
import { useEffect, useState, type KeyboardEvent } from 'react'
import { useNavigate } from 'react-router'
import { api, list } from '../api/client'
import { useMe } from './me'
import { placesOf } from './shell'

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

// Palette goes to a page, a cluster or a plan by its name.
export function Palette({ close }: { close: () => void }) {
  const me = useMe()
  const navigate = useNavigate()
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const word = text.trim().toLowerCase()
  const asks = { enabled: word !== '', staleTime: 5000 }
  const clusters = api.useQuery(
    'get',
    '/clusters',
    {
      params: { query: { name_prefix: word, limit: 8, fields: ['name', 'status'] } },
    },
    asks,
  )
  const plans = api.useQuery(
    'get',
    '/plans',
    {
      params: { query: { id_prefix: word, limit: 5, fields: ['id', 'summary', 'status'] } },
    },
    { ...asks, enabled: word.length >= 3 },
  )
  const found = [
    ...placesOf(me)
      .filter((p) => p.text.toLowerCase().includes(word))
      .map((p) => ({ to: p.to, text: p.text, kind: 'page' })),
    ...(word === ''
      ? []
      : list(clusters.data?.items).map((c) => ({
          to: `/clusters/${c.name}`,
          text: c.name,
          kind: `cluster, ${c.status}`,
        }))),
    ...(word.length < 3
      ? []
      : list(plans.data?.items).map((p) => ({ to: `/plans/${p.id}`, text: p.summary, kind: `plan, ${p.status}` }))),
  ]
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
          aria-label="Page, cluster or plan"
          onKeyDown={key}
          placeholder="A page, the beginning of a cluster's name, or of a plan's id"
          onChange={(_, v) => {
            setText(v)
            setAt(0)
          }}
        />
        <Menu onSelect={(_, id) => go(String(id))} isPlain>
          <MenuContent>
            <MenuList>
              {found.map((f, i) => (
                <MenuItem key={f.to} itemId={f.to} description={f.kind} isFocused={i === chosen}>
                  {f.text}
                </MenuItem>
              ))}
              {found.length === 0 && <MenuItem isDisabled>Nothing begins so.</MenuItem>}
            </MenuList>
          </MenuContent>
        </Menu>
      </ModalBody>
    </Modal>
  )
}
