import { Table } from '@patternfly/react-table'
import type { CSSProperties, ReactNode } from 'react'

interface LongTableProps {
  label: string
  columns: string // their widths, as in grid-template-columns: the same for each row, whatever is in it
  children: ReactNode
}

// columnsOf is the widths of columns for a style, which the styles of .long and .matrix take.
export const columnsOf = (columns: string) => ({ '--columns': columns }) as CSSProperties

// LongTable is a table of a hundred rows and more. Its columns have set widths, because a browser lays out the whole of
// another table when one cell changes. Rows that the window does not show are neither laid out nor painted. A row cuts
// off what hangs over its edge: a menu does not belong here.
export function LongTable({ label, columns, children }: LongTableProps) {
  return (
    <Table role="table" aria-label={label} variant="compact" className="long" style={columnsOf(columns)}>
      {children}
    </Table>
  )
}

// share is a column that takes so many parts of what columns of a set width leave.
export const share = (parts: number) => `minmax(0, ${parts}fr)`
