import { Button } from '@patternfly/react-core'
import { useState, type ReactNode } from 'react'
import { Nothing } from './page'

interface MoreProps<T> {
  of: T[]
  size: number
  children: (some: T[]) => ReactNode
}

// More shows a list in parts, so that a page never has more rows than a browser draws at once.
export function More<T>({ of, size, children }: MoreProps<T>) {
  const [wanted, setPart] = useState(0)
  const parts = Math.max(1, Math.ceil(of.length / size))
  const part = Math.min(wanted, parts - 1)
  if (of.length === 0) return <Nothing title="Nothing is like this." />
  return (
    <>
      {children(of.slice(part * size, (part + 1) * size))}
      {parts > 1 && (
        <nav aria-label="Parts of the list" className="after">
          <Button variant="secondary" isDisabled={part === 0} onClick={() => setPart(part - 1)}>
            Before
          </Button>{' '}
          {part * size + 1} to {Math.min(of.length, (part + 1) * size)} of {of.length}{' '}
          <Button variant="secondary" isDisabled={part === parts - 1} onClick={() => setPart(part + 1)}>
            After
          </Button>
        </nav>
      )}
    </>
  )
}
