import type { ReactNode } from 'react'

// Actions are buttons side by side, and below each other where there is no room.
export function Actions({ children }: { children: ReactNode }) {
  return <div className="actions">{children}</div>
}
