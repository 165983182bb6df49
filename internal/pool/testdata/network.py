"""Networks of OpenCV's dnn module on the first device of OpenCL, whatever its kind: a
residual network as frameworks export it (ONNX), written here with weights of a fixed
seed, and one in the form of Darknet. Each is computed by the processor, too."""

import hashlib
import os
import struct
import tempfile

os.environ["OPENCV_OPENCL_DEVICE"] = ":CPU|GPU|ACCELERATOR:"
os.environ["OPENCV_OPENCL_CACHE_ENABLE"] = "false"
os.environ["OPENCV_DNN_OPENCL_ALLOW_ALL_DEVICES"] = "1"

import cv2
import numpy as np

cv2.setNumThreads(1)
random = np.random.default_rng(1)


def number(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(key, value):
    if isinstance(value, int):
        return number(key << 3) + number(value)
    if isinstance(value, float):
        return number(key << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return number(key << 3 | 2) + number(len(value)) + value


def attribute(name, value):
    if isinstance(value, float):
        return field(1, name) + field(2, value) + field(20, 1)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)


def shaped(name, *shape):
    dims = b"".join(field(1, field(1, n)) for n in shape)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


class Graph:
    """A model of ONNX, whose layers are named by what they give."""

    def __init__(self):
        self.nodes, self.weights = b"", b""

    def tensor(self, name, *shape, scale=None, about=0.0):
        scale = scale or (2 / np.prod(shape[1:])) ** 0.5
        values = (about + scale * random.standard_normal(shape)).astype(np.float32)
        self.weights += field(5, b"".join(field(1, n) for n in shape) + field(2, 1) + field(8, name) + field(9, values.tobytes()))
        return name

    def layer(self, kind, name, *inputs, **attributes):
        node = b"".join(field(1, i) for i in inputs) + field(2, name) + field(4, kind)
        self.nodes += field(1, node + b"".join(field(5, attribute(*a)) for a in attributes.items()))
        return name

    def convolution(self, name, x, inputs, outputs, size=3, stride=1, group=1):
        w = self.tensor(name + ".w", outputs, inputs // group, size, size)
        b = self.tensor(name + ".b", outputs, scale=0.1)
        x = self.layer("Conv", name, x, w, b, kernel_shape=[size, size], strides=[stride, stride], pads=[size // 2] * 4, group=group)
        s = [self.tensor(name + k, outputs, scale=0.1, about=a) for k, a in ((".s", 1), (".t", 0), (".m", 0))]
        v = self.tensor(name + ".v", outputs, scale=0.01, about=1)
        return self.layer("BatchNormalization", name + ".n", x, *s, v, epsilon=1e-5)

    def model(self, x, y):
        graph = self.nodes + field(2, "g") + self.weights + field(11, shaped("x", *x)) + field(12, shaped("y", *y))
        return field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 11))


def residual():
    g = Graph()
    x = g.layer("Relu", "r0", g.convolution("c0", "x", 3, 16, stride=2))
    x = g.layer("MaxPool", "p0", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for i, (inputs, outputs, stride) in enumerate([(16, 16, 1), (16, 32, 2), (32, 64, 2)]):
        y = g.layer("Relu", f"b{i}r", g.convolution(f"b{i}a", x, inputs, outputs, stride=stride))
        y = g.convolution(f"b{i}b", y, outputs, outputs)
        if stride > 1:
            x = g.convolution(f"b{i}s", x, inputs, outputs, size=1, stride=stride)
        x = g.layer("Relu", f"b{i}o", g.layer("Add", f"b{i}+", x, y))
    y = g.layer("Sigmoid", "dr", g.convolution("d", x, 64, 64, group=64))  # by depth
    x = g.layer("Concat", "cat", x, y, axis=1)
    x = g.layer("Flatten", "f", g.layer("GlobalAveragePool", "ap", x), axis=1)
    x = g.layer("Gemm", "fc", x, g.tensor("fc.w", 10, 128), g.tensor("fc.b", 10, scale=0.1), transB=1)
    g.layer("Softmax", "y", x, axis=1)
    return cv2.dnn.readNetFromONNX(np.frombuffer(g.model((1, 3, 64, 64), (1, 10)), np.uint8))


def darknet():
    lines, weights, inputs = ["[net]", "width=64", "height=64", "channels=3"], b"", 3
    for outputs, size in ((8, 3), (16, 3), (8, 1), (16, 3), (10, 1)):
        lines += ["[convolutional]", f"filters={outputs}", f"size={size}", "stride=1", "pad=1", "activation=leaky"]
        if outputs == 16:
            lines += ["[maxpool]", "size=2", "stride=2"]
        scale = (2 / inputs / size / size) ** 0.5
        weights += (0.1 * random.standard_normal(outputs)).astype(np.float32).tobytes()
        weights += (scale * random.standard_normal(outputs * inputs * size * size)).astype(np.float32).tobytes()
        inputs = outputs
    lines += ["[upsample]", "stride=2", "[avgpool]", "[softmax]"]
    with tempfile.TemporaryDirectory() as d:
        names = d + "/n.cfg", d + "/n.weights"
        for name, content in zip(names, ("\n".join(lines).encode() + b"\n", struct.pack("<iiiq", 0, 2, 0, 0) + weights)):
            with open(name, "wb") as f:
                f.write(content)
        return cv2.dnn.readNetFromDarknet(*names)


cv2.ocl.setUseOpenCL(True)
if not cv2.ocl.useOpenCL():
    raise SystemExit("OpenCV does not use OpenCL")
pictures = [random.integers(0, 256, (64, 64, 3), dtype=np.uint8) for _ in range(4)]
for name, net in ("residual", residual()), ("darknet", darknet()):
    answers = {}
    for target in cv2.dnn.DNN_TARGET_CPU, cv2.dnn.DNN_TARGET_OPENCL:
        net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
        net.setPreferableTarget(target)
        found = []
        for i in range(8):
            net.setInput(cv2.dnn.blobFromImage(pictures[i % 4], 1 / 255))
            found.append(net.forward().reshape(-1).copy())
        answers[target] = np.array(found)
    ours = answers[cv2.dnn.DNN_TARGET_OPENCL]
    right = np.allclose(ours, answers[cv2.dnn.DNN_TARGET_CPU], rtol=1e-3, atol=1e-5)
    print(name, "right" if right else "WRONG", *ours[:4].argmax(1), hashlib.sha256(ours.tobytes()).hexdigest()[:16])
