import { Fragment, useLayoutEffect, useReducer, useRef, type ReactNode } from 'react'

const usual = 20 // rows: about what a window shows

// partOf returns how many of the names are shown next, so that no more than most of them are new in the page. Names
// keep their order: nothing is left out between two of them.
export function partOf(names: string[], shown: ReadonlySet<string>, most: number): number {
  let added = 0
  for (const [i, name] of names.entries()) {
    if (!shown.has(name) && ++added > most) return i
  }
  return names.length
}

interface GraduallyProps<T> {
  of: T[]
  name: (one: T) => string // differs for each
  most?: number // rows in a frame: fewer where each has much in it
  children: (one: T) => ReactNode
}

// Gradually puts the rows of a long list into the page a few in each frame. All at once would keep the browser from
// answering keys for 100 ms and more. What is there already stays, and changes at once.
export function Gradually<T>({ of, name, most = usual, children }: GraduallyProps<T>) {
  const [, goOn] = useReducer((n: number) => n + 1, 0)
  const shown = useRef<ReadonlySet<string>>(new Set<string>())
  const names = of.map(name)
  const part = partOf(names, shown.current, most)
  useLayoutEffect(() => {
    shown.current = new Set(names.slice(0, part))
    if (part === names.length) return
    // Before this frame is drawn, React is told to draw the next rows after it.
    const frame = requestAnimationFrame(goOn)
    return () => cancelAnimationFrame(frame)
  })
  return of.slice(0, part).map((one, i) => <Fragment key={names[i]}>{children(one)}</Fragment>)
}
