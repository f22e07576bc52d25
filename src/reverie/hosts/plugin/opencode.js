// Reverie for opencode: the index of memories, memories for each prompt, and the sessions kept for search.
// With OPENCODE_REVERIE_VIEW=1 old results are also cleared and the past is compacted by Reverie before each request.
import { spawn } from "node:child_process"

const PROGRAM = @PROGRAM@
const run = (words, input) =>
  new Promise((done) => {
    const [program, ...rest] = [...PROGRAM, ...words]
    const child = spawn(program, rest, { stdio: ["pipe", "pipe", "ignore"] })
    let text = ""
    const late = setTimeout(() => (child.kill(), done({})), words.includes("View") ? 60_000 : 10_000)
    child.on("error", () => done({}))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (piece) => (text += piece))
    child.on("close", () => {
      clearTimeout(late)
      try {
        done(JSON.parse(text))
      } catch {
        done({})
      }
    })
    child.stdin.end(JSON.stringify(input))
  })

export const Reverie = async ({ directory }) => {
  const hook = async (event, session, more = {}) =>
    (await run(["hook", "--host", "opencode", event], { session_id: session, cwd: directory, ...more }))
      .hookSpecificOutput?.additionalContext
  // One text for a session: a new one for each request would break the prefix that the provider caches.
  const indexes = new Map()
  const index = (session, source) => {
    if (!indexes.has(session)) indexes.set(session, hook("SessionStart", session, { source }))
    return indexes.get(session)
  }
  return {
    "experimental.chat.system.transform": async (input, output) => {
      if (!input.sessionID) return
      const text = await index(input.sessionID, "startup")
      if (text) output.system.push(text)
    },
    "chat.message": async (input, output) => {
      const said = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      const text = await hook("UserPromptSubmit", input.sessionID, { prompt: said.join("\n") })
      if (!text) return
      const id = `prt_${Date.now().toString(16)}reverie${Math.random().toString(36).slice(2, 8)}`
      const place = { sessionID: input.sessionID, messageID: output.message.id }
      output.parts.push({ id, ...place, type: "text", text, synthetic: true })
    },
    "experimental.chat.messages.transform": async (_, output) => {
      if (process.env.OPENCODE_REVERIE_VIEW !== "1") return
      const session = output.messages[0]?.info.sessionID
      const seen = await run(["hook", "--host", "opencode", "View"], {
        session_id: session,
        cwd: directory,
        messages: output.messages,
      })
      if (Array.isArray(seen.messages)) output.messages.splice(0, output.messages.length, ...seen.messages)
    },
    event: async ({ event }) => {
      const session = event.properties?.sessionID
      if (event.type === "session.compacted") await hook("PostCompact", session)
      if (event.type === "session.idle") await hook("Stop", session)
    },
  }
}
