import { ActionsColumn, type IAction } from '@patternfly/react-table'
import { Td } from './cells'

// ActionsCell is the last cell of a row: a menu of what can be done with the thing of that name.
export function ActionsCell({ of, items }: { of: string; items: IAction[] }) {
  return (
    <Td isActionCell>
      {items.length > 0 && (
        <ActionsColumn aria-label={`Actions on ${of}`} popperProps={{ position: 'right' }} items={items} />
      )}
    </Td>
  )
}
