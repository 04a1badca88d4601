// The sidebar has the sections of docs/README.md, and in each the pages to which it links, in its order. Below the README.md
// of a folder are the folder's other pages. Pages to which nothing of this leads come last.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'

export function sidebar(docs) {
  const pages = readdirSync(docs, { recursive: true }).filter((file) => file.endsWith('.md')).sort()
  const read = (page) => readFileSync(join(docs, page), 'utf8')
  const left = new Set(pages.filter((page) => page !== 'README.md'))

  const item = (page) => {
    left.delete(page)
    const title = read(page).match(/^# (.+)$/m)[1].replaceAll('`', '')
    const entry = { text: title, link: '/' + page.replace(/(README)?\.md$/, '') }
    const folder = dirname(page) + '/'
    const below = page.endsWith('/README.md') ? pages.filter((p) => p.startsWith(folder) && left.has(p)) : []
    return below.length > 0 ? { ...entry, collapsed: true, items: below.map(item) } : entry
  }

  const sections = existsSync(join(docs, 'README.md')) ? read('README.md').split(/^## /m).slice(1) : []
  const groups = sections.map((section) => {
    const links = [...section.matchAll(/\]\(([^)#:]+)(#[^)]*)?\)/g)].map(([, path]) => normalize(path))
    const linked = links.map((path) => (left.has(path) ? path : join(path, 'README.md')))
    return { text: section.match(/.*/)[0], items: [...new Set(linked)].filter((page) => left.has(page)).map(item) }
  })
  const rest = pages.filter((page) => left.has(page))
  groups.push({ text: 'More', items: rest.filter((page) => left.has(page)).map(item) })
  return groups.filter((group) => group.items.length > 0)
}
