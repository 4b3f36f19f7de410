import { Button, type ButtonProps } from '@patternfly/react-core'
import { Link } from 'react-router'

// LinkButton looks like a button, and goes to a page.
export function LinkButton({ to, ...rest }: ButtonProps & { to: string }) {
  return <Button {...rest} component={Link} {...{ to }} />
}
