// Long work in a worker, so that the page stays awake. The worker runs the same script: it finds no
// page and answers questions instead (serve).

// In a worker: answer(question) → what the page gets.
export function serve(answer) {
  if (typeof document !== "undefined") return;
  onmessage = ({ data: [number, question] }) => {
    try {
      postMessage([number, answer(question), null]);
    } catch (error) {
      postMessage([number, null, error.message]);
    }
  };
}

// In the page. → {ask(question): a promise, stop()}. The worker is made at the first question; where
// there can be none, `answer` works in the page.
export function make_worker(answer) {
  const waiting = new Map();
  let worker = null;
  let asked = 0;
  function begin_work() {
    const text = URL.createObjectURL(new Blob([`(${cfl_script})()`], { type: "text/javascript" }));
    worker = new Worker(text);
    worker.onmessage = ({ data: [number, found, failed] }) => {
      const { resolve, reject } = waiting.get(number);
      waiting.delete(number);
      if (failed === null) resolve(found);
      else reject(new Error(failed));
    };
  }
  return {
    async ask(question) {
      try {
        if (worker === null) begin_work();
      } catch {
        return answer(question);
      }
      asked += 1;
      const number = asked;
      return new Promise((resolve, reject) => {
        waiting.set(number, { resolve, reject });
        worker.postMessage([number, question]);
      });
    },
    stop() {
      worker?.terminate();
      worker = null;
    },
  };
}
