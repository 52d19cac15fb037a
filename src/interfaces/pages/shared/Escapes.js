import { useEffect } from "preact/hooks"

/** The functions that close open elements, in the order in which the elements were opened. @type {Array<() => void>} */
const open = []

addEventListener("keydown", (event) => {
  if (
    event.key !== "Escape" || event.defaultPrevented || event.isComposing ||
    document.querySelector("dialog[open]") !== null
  ) return
  const close = open.pop()
  if (close === undefined) return
  event.preventDefault()
  close()
})

/**
 * Lets the Escape key close an element, unless another element was opened after it.
 * @param {boolean} isOpen
 * @param {() => void} close
 */
export const useEscape = (isOpen, close) => {
  useEffect(() => {
    if (!isOpen) return
    open.push(close)
    return () => {
      const index = open.lastIndexOf(close)
      if (index !== -1) open.splice(index, 1)
    }
  }, [isOpen])
}
