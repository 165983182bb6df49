;; A policy module: it scores a center by how much of its CPU is free, and keeps
;; out centers where more replicas wait than run.
;;
;;   npx --package wabt wat2wasm headroom.wat -o headroom.wasm
;;   yunhe policy module upload headroom headroom.wasm
(module
  (import "yunhe" "number" (func $number (param i32 i32) (result f64)))

  (memory (export "memory") 1)
  (data (i32.const 0) "free.cpu")
  (data (i32.const 16) "capacity.cpu")
  (data (i32.const 32) "waiting")
  (data (i32.const 48) "running")

  ;; 100 × free / capacity. A center without CPU gives 0/0: not a number, which
  ;; means that nothing is known of it.
  (func (export "score") (result f64)
    (f64.div
      (f64.mul (f64.const 100) (call $number (i32.const 0) (i32.const 8)))
      (call $number (i32.const 16) (i32.const 12))))

  ;; 1 lets the center pass.
  (func (export "filter") (result i32)
    (f64.le
      (call $number (i32.const 32) (i32.const 7))
      (call $number (i32.const 48) (i32.const 7)))))
