// Templates, methods, lambdas and inlined functions.
#include "stop.h"
#include <utility>
#define KEEP __attribute__((noipa))

volatile int sink;

namespace shapes {
struct Shape {
    virtual ~Shape() = default;
    virtual int area(int scale) const = 0;
};

template <typename T, int N> struct Square : Shape {
    T side[N] = {};
    KEEP int area(int scale) const override {
        stop_now();
        return scale + static_cast<int>(side[N - 1]);
    }
};

static inline __attribute__((always_inline)) int twice(const Shape &shape) {
    int first = shape.area(1);
    sink = first;
    return first * 2;
}

static inline __attribute__((always_inline)) int both(const Shape &shape) {
    return twice(shape) + sink;
}

template <typename F> KEEP int apply(F &&function) {
    return function(3) + sink;
}
} // namespace shapes

KEEP static int measure(const shapes::Shape &shape) {
    try {
        return shapes::both(shape) + sink;
    } catch (...) {
        return 0;
    }
}

int main() {
    shapes::Square<float, 4> square;
    auto body = [&square](int n) __attribute__((noipa)) { return measure(square) + n + sink; };
    return shapes::apply(body) & sink;
}
