// The kinds of documents are those that have a template, in the order of the templates.
import { templates } from './templates'

export type Kind = keyof typeof templates

export const kinds = Object.keys(templates) as Kind[]
