import { Nav, NavItem, NavList } from '@patternfly/react-core'
import { Link } from 'react-router'

interface PageTabsProps {
  label: string
  base: string // the path before the part
  at: string
  of: readonly (readonly [key: string, text: string])[]
}

// PageTabs are the parts of a page. Each has an address of its own.
export function PageTabs({ label, base, at, of }: PageTabsProps) {
  return (
    <Nav aria-label={label} variant="horizontal-subnav" className="tabs">
      <NavList>
        {of.map(([key, text]) => (
          <NavItem key={key} isActive={key === at}>
            <Link to={`${base}/${key}`}>{text}</Link>
          </NavItem>
        ))}
      </NavList>
    </Nav>
  )
}
