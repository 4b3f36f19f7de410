import { FitAddon } from '@xterm/addon-fit'
import { Terminal as Screen } from '@xterm/xterm'
import '@xterm/xterm/css/xterm.css'
import { useEffect, useRef } from 'react'
import type { Schemas } from '../api/client'
import { nonce } from './nonce'

// End is the last message of a shell.
export interface End {
  ended?: string
  problem?: Schemas['Problem']
}

interface TerminalProps {
  url: string
  reason: string
  label: string
  ended: (why: End) => void
}

// styled is the document with a nonce in the styles that the terminal adds: the page's policy allows no others.
function styled(): Document {
  return new Proxy(document, {
    get(of, key) {
      if (key === 'createElement') {
        return (name: string) => {
          const made = of.createElement(name)
          if (made instanceof HTMLStyleElement) made.nonce = nonce()
          return made
        }
      }
      const value: unknown = Reflect.get(of, key)
      return typeof value === 'function' ? (value.bind(of) as unknown) : value
    },
  })
}

// Terminal connects a screen with a shell until one of both ends.
export default function Terminal({ url, reason, label, ended }: TerminalProps) {
  const box = useRef<HTMLDivElement>(null)
  const told = useRef(ended)
  told.current = ended
  useEffect(() => {
    if (!box.current) return
    const screen = new Screen({
      cursorBlink: true,
      screenReaderMode: true,
      fontSize: 14,
      documentOverride: styled(),
    })
    const fit = new FitAddon()
    screen.loadAddon(fit)
    screen.open(box.current)
    screen.textarea?.setAttribute('aria-label', label)
    fit.fit()
    const query = new URLSearchParams({ reason, cols: String(screen.cols), rows: String(screen.rows) })
    const socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}${url}?${query}`)
    socket.binaryType = 'arraybuffer'
    let end: End | undefined
    const keys = new TextEncoder()
    const send = (data: string | Uint8Array<ArrayBuffer>) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(data)
    }
    socket.onopen = () => screen.focus()
    socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
      if (typeof data === 'string') end = JSON.parse(data) as End
      else screen.write(new Uint8Array(data))
    }
    socket.onclose = () => told.current(end ?? { ended: 'the director cannot be reached, or refuses it' })
    const typed = screen.onData((text) => send(keys.encode(text)))
    const raw = screen.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0))))
    const sized = screen.onResize(({ cols, rows }) => send(JSON.stringify({ cols, rows })))
    const watch = new ResizeObserver(() => fit.fit())
    watch.observe(box.current)
    return () => {
      socket.onclose = null
      socket.close()
      watch.disconnect()
      for (const d of [typed, raw, sized, screen]) d.dispose()
    }
  }, [url, reason, label])
  return (
    <>
      <p>
        To leave the terminal by keyboard, end the shell: <kbd>exit</kbd>. It is closed after 15 minutes without a key.
      </p>
      <div className="node-terminal" ref={box} />
    </>
  )
}
