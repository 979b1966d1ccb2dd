"""The table of networks: adding one is a factory and a line here."""

from ukemi.models import dare, demo, fashion, gtsrb, imdb, lenet, mobilenet, nin, preactivation, resnet, styx, svhn
from ukemi.models.shape import Entry, Shape

GREY = Shape(1, (28, 28), 10)
CIFAR = Shape(3, (32, 32), 10)
SIGNS = Shape(3, (48, 48), 43)
FACES = Shape(3, (128, 128), 5)
IMAGENET = Shape(3, (224, 224), 1000)

SENSEI = "Gao et al., ICSE 2020 (SENSEI)"
FUZZING = "Lee et al. (SENSEI-RW, SENSEI-T)"
UNCERTAIN = "Zhang, ICSE 2020 Companion (uncertainty-guided testing)"
DARE = "Zhang et al., ASE 2022 (DARE)"
STYX = "Hong et al. (STYX)"

MODELS: dict[str, Entry] = {
    "demo-cnn": Entry(demo.demo_cnn, "three strided convolutions, for the demo", GREY, "ukemi"),
    "resnet20": Entry(preactivation.resnet20, "pre-activation ResNet, 6n+2 with n = 3", CIFAR, SENSEI),
    "resnet32": Entry(preactivation.resnet32, "pre-activation ResNet, 6n+2 with n = 5", CIFAR, SENSEI),
    "resnet50-6n2": Entry(preactivation.resnet50_6n2, "pre-activation ResNet, 6n+2 with n = 8", CIFAR, SENSEI),
    "wrn-28-10": Entry(preactivation.wrn_28_10, "Wide ResNet, 28 layers, 10 times as wide", CIFAR, SENSEI),
    "resnet18": Entry(resnet.resnet18, "ResNet of basic blocks, 3x3 stem", CIFAR, "He et al., CVPR 2016"),
    "resnet50": Entry(resnet.resnet50, "ResNet of bottlenecks, 3x3 stem", CIFAR, FUZZING),
    "resnet50-imagenet": Entry(
        resnet.resnet50_imagenet, "ResNet of bottlenecks, 7x7 stem", CIFAR._replace(classes=1000), FUZZING
    ),
    "vgg16": Entry(dare.vgg16, "VGG-16 with BatchNorm, fc 4096", CIFAR, DARE),
    "vgg19": Entry(dare.vgg19, "VGG-19 with BatchNorm, fc 4096", CIFAR, DARE),
    "alexnet": Entry(dare.alexnet, "AlexNet for small images", CIFAR, DARE, 21),
    "nin": Entry(nin.nin, "network in network", CIFAR, UNCERTAIN, 4),
    "lenet5": Entry(lenet.lenet5, "LeNet-5 with ReLU and dropout", GREY, UNCERTAIN, 12),
    "lenet5-dropout": Entry(lenet.lenet5_dropout, "LeNet-5, dropout behind both dense layers", GREY, UNCERTAIN, 12),
    "mobilenet": Entry(mobilenet.mobilenet, "MobileNet v1 for small images", CIFAR, UNCERTAIN),
    "mobilenet-224": Entry(mobilenet.mobilenet_224, "MobileNet v1", IMAGENET, UNCERTAIN),
    "styx-mlp": Entry(styx.styx_mlp, "two dense layers", GREY, STYX),
    "styx-cnn": Entry(styx.styx_cnn, "two convolutions", GREY, STYX, 6),
    "styx-cifar-cnn": Entry(styx.styx_cifar_cnn, "four convolutions", CIFAR, STYX, 10),
    "fm-1": Entry(fashion.fm_1, "VGG-16 without its last block, fc 4096", GREY, SENSEI, 16),
    "fm-2": Entry(fashion.fm_2, "three convolutions, dense layers with max-norm 3", GREY, SENSEI),
    "fm-3": Entry(fashion.fm_3, "two convolutions between BatchNorms", GREY, SENSEI, 10),
    "gtsrb-1": Entry(gtsrb.gtsrb_1, "six convolutions", SIGNS, SENSEI),
    "gtsrb-1-t6": Entry(gtsrb.gtsrb_1_t6, "eight convolutions, for six variations", SIGNS, SENSEI),
    "gtsrb-2": Entry(gtsrb.gtsrb_2, "VGG-16, fc 4096", SIGNS, SENSEI),
    "gtsrb-3": Entry(gtsrb.gtsrb_3, "six convolutions with BatchNorm", SIGNS, SENSEI),
    "gtsrb-4": Entry(gtsrb.gtsrb_4, "VGG-16, fc 256", SIGNS, SENSEI),
    "svhn-1": Entry(svhn.svhn_1, "six convolutions with BatchNorm", CIFAR, SENSEI, 20),
    "svhn-2": Entry(svhn.svhn_2, "four convolutions", CIFAR, SENSEI, 10),
    "imdb-1": Entry(imdb.imdb_1, "VGG-16, global average, fc 1024", FACES, SENSEI, 32),
    "imdb-2": Entry(imdb.imdb_2, "VGG-19, global average, fc 1024", FACES, SENSEI, 32),
}
"""Every network by its name."""
