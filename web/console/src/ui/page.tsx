import {
  Breadcrumb,
  BreadcrumbItem,
  Bullseye,
  EmptyState,
  EmptyStateBody,
  Flex,
  FlexItem,
  PageSection,
  Spinner,
  Title,
} from '@patternfly/react-core'
import { Fragment, useEffect, useState, type ReactNode } from 'react'
import { Link } from 'react-router'
import { ProblemAlert } from './problem'

interface PageProps {
  title: string
  above?: { to: string; text: string }[] // the pages that this one is below of
  beside?: ReactNode // status
  actions?: ReactNode
  children: ReactNode
}

// Page is what every page looks like, and sets its title in the browser.
export function Page({ title, above, beside, actions, children }: PageProps) {
  useEffect(() => {
    document.title = `${title} · Director`
  }, [title])
  return (
    <>
      <PageSection>
        {above && (
          <Breadcrumb>
            {above.map((a) => (
              <BreadcrumbItem
                key={a.to}
                render={({ className }) => (
                  <Link className={className} to={a.to}>
                    {a.text}
                  </Link>
                )}
              />
            ))}
            <BreadcrumbItem isActive>{title}</BreadcrumbItem>
          </Breadcrumb>
        )}
        <Flex justifyContent={{ default: 'justifyContentSpaceBetween' }} className="page-head">
          <Flex alignItems={{ default: 'alignItemsCenter' }}>
            <FlexItem>
              <Title headingLevel="h1" className="break">
                {title}
              </Title>
            </FlexItem>
            {beside && <FlexItem>{beside}</FlexItem>}
          </Flex>
          {actions && <FlexItem>{actions}</FlexItem>}
        </Flex>
      </PageSection>
      <PageSection isFilled>{children}</PageSection>
    </>
  )
}

interface Asked<T> {
  data: T | undefined
  error: unknown
  isPending: boolean
  refetch: () => unknown
}

// Answer shows what was asked for, or why it is not there. What was seen before stays while the director is away.
export function Answer<T>({ of, children }: { of: Asked<T>; children: (data: T) => ReactNode }) {
  if (of.data !== undefined) {
    return (
      <>
        {of.error != null && <ProblemAlert of={of.error} retry={() => void of.refetch()} />}
        {children(of.data)}
      </>
    )
  }
  if (of.error != null) return <ProblemAlert of={of.error} retry={() => void of.refetch()} />
  return <Waiting />
}

const usual = 3000 // ms

// Waiting says so where an answer takes longer than usual: a hypervisor or a cluster that hangs is asked for it.
function Waiting() {
  const [long, setLong] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLong(true), usual)
    return () => clearTimeout(timer)
  }, [])
  return (
    <Bullseye className="loading">
      <Flex alignItems={{ default: 'alignItemsCenter' }}>
        <Spinner aria-label="Loading" />
        {long && <span role="status">The answer takes longer than usual. You can go to other pages meanwhile.</span>}
      </Flex>
    </Bullseye>
  )
}

export function Nothing({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <EmptyState titleText={title} headingLevel="h2" variant="sm">
      {children && <EmptyStateBody>{children}</EmptyStateBody>}
    </EmptyState>
  )
}

// Facts are terms with what holds for them. What is not known is left out.
export function Facts({ of }: { of: [string, ReactNode][] }) {
  const known = of.filter(([, v]) => v !== undefined && v !== null && v !== '' && v !== false)
  return (
    <dl className="facts">
      {known.map(([term, value]) => (
        <Fragment key={term}>
          <dt>{term}</dt>
          <dd>{value}</dd>
        </Fragment>
      ))}
    </dl>
  )
}
