// What was computed last is kept: who asks the same again does not wait.

// compute(question) with a question of numbers, texts and lists → the same function with a memory of one.
export function latest(compute) {
  let asked = null;
  let found;
  return (question) => {
    const text = JSON.stringify(question);
    if (text !== asked) {
      found = compute(question);
      asked = text;
    }
    return found;
  };
}
