import type { ReactNode } from 'react'

// Rows and cells of PatternFly's tables. Its own cells measure themselves whenever their table is drawn, which takes
// most of the time of a list with hundreds of them.

export function Tr({ children }: { children: ReactNode }) {
  return (
    <tr role="row" className="pf-v6-c-table__tr">
      {children}
    </tr>
  )
}

interface TdProps {
  dataLabel?: string // is shown next to the cell where the window is narrow
  className?: string
  isActionCell?: boolean
  'aria-hidden'?: 'true'
  children?: ReactNode
}

export function Td({ dataLabel, className = '', isActionCell, children, ...rest }: TdProps) {
  const classes = `pf-v6-c-table__td ${isActionCell ? 'pf-v6-c-table__action' : ''} ${className}`
  return (
    <td role="cell" data-label={dataLabel} className={classes} {...rest}>
      {children}
    </td>
  )
}
