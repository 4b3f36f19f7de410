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

interface ThProps {
  width?: 20 | 25 | 30 | 40 | 45 // of the table, in per cent
  modifier?: 'fitContent'
  screenReaderText?: string // of a column that has no title
  children?: ReactNode
}

export function Th({ width, modifier, screenReaderText, children }: ThProps) {
  const size = width ? `pf-m-width-${width}` : modifier === 'fitContent' ? 'pf-m-fit-content' : ''
  return (
    <th scope="col" className={`pf-v6-c-table__th ${size}`}>
      {children ?? <span className="pf-v6-screen-reader">{screenReaderText}</span>}
    </th>
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
