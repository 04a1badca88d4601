// The sidebar has the sections of docs/README.md, and in each the pages to which it links, in its order and by its words. Below
// the README.md of a folder are the folder's other pages. Pages to which nothing of this leads come last.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'

export function sidebar(docs) {
  const pages = readdirSync(docs, { recursive: true }).filter((file) => file.endsWith('.md')).sort()
  const read = (page) => readFileSync(join(docs, page), 'utf8')
  const left = new Set(pages.filter((page) => page !== 'README.md'))

  const title = (page) => read(page).match(/^# (.+)$/m)[1].replaceAll('`', '')
  const item = (page, text) => {
    left.delete(page)
    const entry = { text, link: '/' + page.replace(/(README)?\.md$/, '') }
    const folder = dirname(page) + '/'
    const below = page.endsWith('/README.md') ? pages.filter((p) => p.startsWith(folder) && left.has(p)) : []
    return below.length > 0 ? { ...entry, collapsed: true, items: below.map((p) => item(p, title(p))) } : entry
  }

  const index = existsSync(join(docs, 'README.md')) ? read('README.md') : ''
  const groups = index.split(/^## /m).slice(1).map((section) => {
    const items = []
    for (const [, text, path] of section.matchAll(/\[([^\]]+)\]\(([^)#:]+)(?:#[^)]*)?\)/g)) {
      const page = left.has(normalize(path)) ? normalize(path) : join(path, 'README.md')
      if (left.has(page)) items.push(item(page, text.replaceAll('`', '')))
    }
    return { text: section.match(/.*/)[0], items }
  })
  const rest = pages.filter((page) => left.has(page))
  groups.push({ text: 'More', items: rest.filter((page) => left.has(page)).map((page) => item(page, title(page))) })
  return groups.filter((group) => group.items.length > 0)
}
