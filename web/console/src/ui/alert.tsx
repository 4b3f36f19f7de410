import { Alert as Base, type AlertProps } from '@patternfly/react-core'

// Alert is not a heading: what it says is no part of the page's outline.
export function Alert(props: AlertProps) {
  return <Base component="p" {...props} />
}
