import { createContext, useContext, type MouseEvent, type ReactNode } from 'react'

// GoContext has what goes to a path of the console. It is the same function for as long as the console is open.
export const GoContext = createContext<(path: string) => void>((path) => location.assign(path))

interface RowLinkProps {
  to: string // begins with /
  className?: string
  'aria-label'?: string
  children: ReactNode
}

// RowLink is a link for lists. A Link of the router is drawn again at each change of the address, as a filter makes one
// at each key; hundreds of them are slow.
export function RowLink({ to, children, ...rest }: RowLinkProps) {
  const go = useContext(GoContext)
  const click = (e: MouseEvent) => {
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
    e.preventDefault()
    go(to)
  }
  return (
    <a {...rest} href={to} onClick={click}>
      {children}
    </a>
  )
}
